-- A page of steps of flows that go on which have waited for as long as they may.
select step.flow, step.number
from tidemill_flow_step as step
where step.state = 0 and step.late_at <= ?1
    and exists (select 1 from tidemill_flow as flow where flow.id = step.flow and flow.state = 1)
order by step.late_at
limit ?2

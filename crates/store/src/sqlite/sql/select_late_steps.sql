-- A page of steps of flows that go on which have waited for as long as they may, behind one.
select step.flow, step.number, step.late_at
from tidemill_flow_step as step
where step.state = 0 and step.late_at <= ?1
    and exists (select 1 from tidemill_flow as flow where flow.id = step.flow and flow.state = 1)
    and (?3 is null or (step.late_at, step.flow, step.number) > (?3, ?4, ?5))
order by step.late_at, step.flow, step.number
limit ?2

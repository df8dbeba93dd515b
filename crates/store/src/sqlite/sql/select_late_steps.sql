-- Steps of flows that go on which have waited for as long as they may, and how many jobs of their parents have not ended.
-- With ?3, one step of this flow, if it still is such a one.
select step.flow, step.number, coalesce((
    select sum(parent.left) from tidemill_flow_edge as edge
    join tidemill_flow_step as parent
        on parent.flow = edge.flow and parent.number = edge.from_step and parent.state < 3
    where edge.flow = step.flow and edge.to_step = step.number
), 0)
from tidemill_flow_step as step
where step.state = 0 and step.late_at <= ?1
    and exists (select 1 from tidemill_flow as flow where flow.id = step.flow and flow.state = 1)
    and (?3 is null or step.flow = ?3 and step.number = ?4)
order by step.late_at
limit ?2

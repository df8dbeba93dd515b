-- Of a step that has waited for as long as it may, and still does: how many jobs of its parents have not ended. It may
-- have been decided, or given more time, since it was found.
select coalesce((
    select sum(parent.left) from tidemill_flow_edge as edge
    join tidemill_flow_step as parent
        on parent.flow = edge.flow and parent.number = edge.from_step and parent.state < 3
    where edge.flow = step.flow and edge.to_step = step.number
), 0)
from tidemill_flow_step as step
where step.flow = ?2 and step.number = ?3 and step.state = 0 and step.late_at <= ?1
    and exists (select 1 from tidemill_flow as flow where flow.id = step.flow and flow.state = 1)

-- The edges of a flow, with the names of the steps they leave.
select edge.to_step, step.name, edge.on_end, edge.when_holds, edge.held
from tidemill_flow_edge as edge
join tidemill_flow_step as step on step.flow = edge.flow and step.number = edge.from_step
where edge.flow = ?1
order by edge.to_step, edge.from_step

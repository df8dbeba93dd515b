-- The edges of a flow, with the names of the steps they leave.
select e.to_step, s.name, e.on_end, e.when_holds, e.held, e.from_step
from tidemill.flow_edge e join tidemill.flow_step s on s.flow = e.flow and s.number = e.from_step
where e.flow = $1::uuid order by e.to_step, e.from_step;

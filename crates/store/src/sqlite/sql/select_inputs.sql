-- What the steps before one are, and what the only job of each returned, if that is small.
select
    step.name, step.number, step.state, step.jobs, step.ok, step.failed,
    iif(step.jobs = 1, (
        select iif(octet_length(output) <= ?3, output, null) from tidemill_outcome as outcome
        where outcome.flow = step.flow and outcome.step = step.number and outcome.state = 4 limit 1
    ), null)
from tidemill_flow_edge as edge
join tidemill_flow_step as step on step.flow = edge.flow and step.number = edge.from_step
where edge.flow = ?1 and edge.to_step = ?2
order by step.number

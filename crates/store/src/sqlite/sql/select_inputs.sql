-- What the steps before one are, and what the only job of each returned, if that is small.
select
    step.name, step.number, step.state, step.jobs, step.ok, step.failed,
    iif(step.jobs = 1, (
        select iif(octet_length(outcome.output) <= ?3, outcome.output, null)
        from tidemill_job as job
        join tidemill_outcome as outcome on outcome.id = job.id and outcome.state = 4
        where job.flow = step.flow and job.step = step.number limit 1
    ), null)
from tidemill_flow_edge as edge
join tidemill_flow_step as step on step.flow = edge.flow and step.number = edge.from_step
where edge.flow = ?1 and edge.to_step = ?2
order by step.number

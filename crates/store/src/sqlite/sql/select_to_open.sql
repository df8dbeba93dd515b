-- The next jobs of a step that are to be let go; those that were called off meanwhile are only passed by.
select
    job.id, job.kind, job.queue, job.priority, job.tenant, job.key, job.unique_key, job.payload, job.options,
    job.created_at, job.run_at, outcome.id is not null
from tidemill_flow_step as step
join tidemill_job as job on job.flow = step.flow and job.step = step.number and job.id > step.opened
left join tidemill_outcome as outcome on outcome.id = job.id
where step.flow = ?1 and step.number = ?2
order by job.id
limit ?3

-- The next jobs of a step that are to be let go. Those that were called off meanwhile are passed by, and so are those
-- that were let go before, where others of the step come again: these have a time of their own.
select
    job.id, job.kind, job.queue, job.priority, job.tenant, job.key, job.unique_key, job.payload, job.options,
    job.created_at, job.run_at
from tidemill_flow_step as step
join tidemill_job as job on job.flow = step.flow and job.step = step.number and job.id > step.opened and job.run_at = 0
where step.flow = ?1 and step.number = ?2 and not exists (select 1 from tidemill_outcome where id = job.id)
order by job.id
limit ?3

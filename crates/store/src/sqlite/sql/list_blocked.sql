-- All jobs that wait for another one: kept for after the holder of their unique key, behind the first of their line, or
-- in a step of a flow that has not let them go; and runs that wait for mail, or for somebody. Newest first.
select next_id from tidemill_unique_key where next_id is not null
union
select id from tidemill_line_waiting
union
select job.id
from tidemill_flow_step as step
join tidemill_job as job on job.flow = step.flow and job.step = step.number and job.id > step.opened
where step.state < 2 and job.run_at = 0 and not exists (select 1 from tidemill_outcome where id = job.id)
union
select run.job from tidemill_run as run
where (run.waits is not null and json_extract(run.waits, '$.until') is null or run.parked is not null or run.paused)
    and not exists (select 1 from tidemill_outcome where id = run.job)
order by 1 desc

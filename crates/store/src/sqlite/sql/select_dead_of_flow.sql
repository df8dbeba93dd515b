-- A page of the dead jobs of a flow, or of one of its steps; not of what was run again.
select job.id
from tidemill_job as job
join tidemill_outcome as outcome on outcome.id = job.id and outcome.state = 6
where job.flow = ?1 and (?2 is null or job.step = ?2) and not exists (
    select 1 from tidemill_flow_step as step
    where step.flow = job.flow and step.number = job.step and step.superseded
)
limit ?3

-- A page of what the jobs of a step returned, by id.
select job.id, outcome.output
from tidemill_job as job
join tidemill_outcome as outcome on outcome.id = job.id and outcome.step is not null
where job.flow = ?1 and job.step = ?2 and (?3 is null or job.id > ?3) order by job.id limit ?4

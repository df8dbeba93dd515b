-- What the only job of a step returned.
select outcome.output
from tidemill_job as job
join tidemill_outcome as outcome on outcome.id = job.id and outcome.state = 4
where job.flow = ?1 and job.step = ?2
limit 1

-- Who holds the unique key that a job is kept for, or had when it finished.
select held.id
from tidemill_job as job
join tidemill_unique_key as held on held.key = job.unique_key and held.id <> job.id
where job.id = ?1
    and (held.next_id = job.id or exists (select 1 from tidemill_outcome as outcome where outcome.id = job.id))

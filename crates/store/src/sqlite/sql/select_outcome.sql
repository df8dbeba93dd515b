-- What became of a job.
select state, attempt, lost, token, worker, finished_at, output, error, keyed
from tidemill_outcome
where id = ?1

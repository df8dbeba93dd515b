-- The attempts of a job that are kept, oldest first.
select attempt, token, worker, started_at, ended_at, class, error, next_at
from tidemill_attempt
where id = ?1
order by token

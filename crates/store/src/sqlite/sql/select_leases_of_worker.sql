-- What a worker holds, oldest first.
select token, worker, jobs, cancels, claimed_at from tidemill_lease where worker = ?1 order by token

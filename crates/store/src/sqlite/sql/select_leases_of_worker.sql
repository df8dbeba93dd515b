-- What a worker holds.
select token, worker, jobs, cancels from tidemill_lease where worker = ?1 order by token

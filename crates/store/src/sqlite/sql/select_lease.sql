-- What a token still holds.
select token, worker, jobs, cancels from tidemill_lease where token = ?1

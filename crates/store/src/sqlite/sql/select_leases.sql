-- All leases: a row per claim in flight.
select token, worker, jobs, cancels, claimed_at from tidemill_lease

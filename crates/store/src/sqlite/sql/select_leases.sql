-- All leases: a row per claim in flight.
select token, worker, jobs, cancels from tidemill_lease

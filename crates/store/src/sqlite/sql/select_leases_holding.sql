-- The lease that names this job. The bytes of an id may stand by chance across two: look again.
select token, worker, jobs, cancels from tidemill_lease where instr(jobs, ?1) > 0

-- The earliest due time in a lane of those that were let through a gate.
select min(run_at) from tidemill_ready where queue = ?1 and priority = ?2 and line = 1

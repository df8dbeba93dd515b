-- The first jobs of a queue that a gate holds.
select queue, run_at, id, priority, tenant, gate from tidemill_ready where line = 2 and gate = ?1 and queue = ?2
order by run_at, id limit ?3

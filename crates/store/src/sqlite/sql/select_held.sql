-- The first jobs of a tenant in a lane that a gate holds.
select queue, run_at, id, priority, tenant, gate from tidemill_ready indexed by tidemill_ready_held
where line = 2 and gate = ?1 and queue = ?2 and priority = ?3 + 10 and tenant = ?4
order by run_at, id limit ?5

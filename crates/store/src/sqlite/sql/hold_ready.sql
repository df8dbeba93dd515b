-- Holds a waiting job at a gate.
update tidemill_ready set priority = priority + 10, line = 2, gate = ?6
where queue = ?1 and priority = ?2 and tenant = ?3 and run_at = ?4 and id = ?5

-- Lets a job through that a gate holds; it is where it stood before.
update tidemill_ready set priority = priority - 10, line = 1, gate = ''
where queue = ?1 and priority = ?2 and tenant = ?3 and run_at = ?4 and id = ?5

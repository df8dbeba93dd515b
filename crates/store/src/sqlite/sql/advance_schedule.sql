-- Steps from a slot that has come to the next; no row unless it waits for just this one, in this version.
update tidemill_schedule set next_at = ?5
where name = ?2 and version = ?3 and next_at = ?4 and paused = 0 and next_at <= ?1
returning last_job

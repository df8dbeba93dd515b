-- A job waits, for a slot or for the clock.
insert into tidemill_ready (queue, priority, run_at, id, kind, spent, lost)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)

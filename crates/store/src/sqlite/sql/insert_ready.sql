-- A job waits, for a slot or for the clock.
insert into tidemill_ready (queue, priority, tenant, run_at, id, kind, spent, lost)
values (?1, ?2, coalesce(?3, ''), ?4, ?5, ?6, ?7, ?8)

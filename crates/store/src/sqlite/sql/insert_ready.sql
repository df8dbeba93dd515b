-- A job waits, for a slot or for the clock.
insert into tidemill_ready (queue, priority, tenant, run_at, id, kind, key, spent, lost)
values (?1, ?2, coalesce(?3, ''), ?4, ?5, ?6, coalesce(?7, ''), ?8, ?9)

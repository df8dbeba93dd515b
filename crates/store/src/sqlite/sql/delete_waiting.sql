-- A job waits no longer at this place, nor at a gate.
delete from tidemill_ready
where queue = ?1 and priority in (?2, ?2 + 10, ?2 + 20) and tenant = coalesce(?3, '') and run_at = ?4 and id = ?5

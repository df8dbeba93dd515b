-- A job waits no longer at this place.
delete from tidemill_ready
where queue = ?1 and priority = ?2 and tenant = coalesce(?3, '') and run_at = ?4 and id = ?5

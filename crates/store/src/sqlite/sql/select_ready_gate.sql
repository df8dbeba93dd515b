-- The gate that holds a job which waits at this place.
select gate from tidemill_ready
where queue = ?1 and priority = ?2 + 10 and tenant = coalesce(?3, '') and run_at = ?4 and id = ?5

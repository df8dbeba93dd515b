-- Whether a job waits at this place, and what it has behind it.
select spent, lost from tidemill_ready
where queue = ?1 and priority in (?2, ?2 + 10, ?2 + 20) and tenant = coalesce(?3, '') and run_at = ?4 and id = ?5

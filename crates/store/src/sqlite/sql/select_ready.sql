-- Whether a job waits at this place, and what it has behind it.
select spent, lost from tidemill_ready
where queue = ?1 and priority = ?2 and run_at = ?3 and id = ?4

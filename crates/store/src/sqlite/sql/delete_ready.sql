-- A job waits no more. Whoever deletes the row, and nobody else, decides what becomes of the job.
delete from tidemill_ready where queue = ?1 and priority = ?2 and run_at = ?3 and id = ?4

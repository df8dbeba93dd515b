-- Forgets what became of a job.
delete from tidemill_outcome where id = ?1

-- Forgets the body of a finished job.
delete from tidemill_job where id = ?1

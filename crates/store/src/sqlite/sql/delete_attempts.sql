-- Forgets the attempts of a finished job.
delete from tidemill_attempt where id = ?1

-- Forgets how a run waited before.
delete from tidemill_attempt where id = ?1 and token < ?2 and class is null

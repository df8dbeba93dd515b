-- Forgets a dead letter.
delete from tidemill_dead where id = ?1

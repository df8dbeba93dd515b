-- Forgets the notes on a dead letter.
delete from tidemill_note where id = ?1

-- What was noted on a dead letter, oldest first.
select at, by, text from tidemill_note where id = ?1 order by number

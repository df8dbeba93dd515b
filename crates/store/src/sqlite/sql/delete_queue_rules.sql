-- Takes the rules of a queue away.
delete from tidemill_queue where name = ?1

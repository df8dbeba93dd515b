-- Takes the rules of a queue away.
delete from tidemill.queue where name = $1::text;

-- Takes a rule away.
delete from tidemill.redrive_rule where name = $1::text;

-- Takes a rule away.
delete from tidemill_redrive_rule where name = ?1

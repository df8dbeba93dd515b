-- Takes a webhook away.
delete from tidemill_webhook where name = ?1

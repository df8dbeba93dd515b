-- Takes a webhook away, if it has this version.
delete from tidemill_webhook where id = ?1 and version = ?2

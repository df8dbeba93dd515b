-- Takes a webhook away, if it has this version; answers a row if it did.
delete from tidemill.webhook where id = $1::uuid and version = $2::int8 returning 1;

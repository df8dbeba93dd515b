-- Takes a webhook away; answers a row if there was one.
delete from tidemill.webhook where name = $1::text returning 1;

-- What stands beside an entry, and the entry as it is then.
select value, entry::text from tidemill.journal where job = $1::uuid and number = $2::int4 and value is not null;

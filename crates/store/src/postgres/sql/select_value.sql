-- What stands beside an entry.
select value from tidemill.journal where job = $1::uuid and number = $2::int4 and value is not null;

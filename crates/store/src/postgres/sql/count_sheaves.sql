-- The number of sheaves, counted up to $1.
select count(*) from (select from tidemill.ready limit $1::int8) s;

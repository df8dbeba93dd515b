-- Says which of these ids were written before; each probe is one look into the primary key.
select id from tidemill.job where id = any ($1::uuid[]);

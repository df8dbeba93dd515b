-- What the object of a queue, a tenant or none, and a key is.
select o.state::text from tidemill.object o
where o.queue = $1::text and o.tenant = coalesce($2::text, '') and o.key = $3::text;

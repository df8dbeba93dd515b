-- What the object of a queue and a key is.
select o.state::text from tidemill.object o where o.queue = $1::text and o.key = $2::text;

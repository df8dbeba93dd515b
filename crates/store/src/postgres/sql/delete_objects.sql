-- Forgets objects that are nothing any more.
delete from tidemill.object o using unnest($1::text[], $2::text[]) d(queue, key)
where o.queue = d.queue and o.key = d.key;

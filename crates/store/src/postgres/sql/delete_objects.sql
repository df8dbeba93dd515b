-- Forgets objects that are nothing any more. A tenant may be null.
delete from tidemill.object o using unnest($1::text[], $2::text[], $3::text[]) d(queue, tenant, key)
where o.queue = d.queue and o.tenant = coalesce(d.tenant, '') and o.key = d.key;

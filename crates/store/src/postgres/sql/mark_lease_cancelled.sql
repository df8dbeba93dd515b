-- Notes in locked leases that running jobs were called off, and why; a heartbeat carries it to their worker.
update tidemill.lease l
set cancelled = l.cancelled || i.ids, reasons = l.reasons || array_fill($3::text, array[cardinality(i.ids)])
from (select token, array_agg(id) as ids from unnest($1::int8[], $2::uuid[]) i(token, id) group by token) i
where l.token = any ($1) and l.token = i.token;

-- Takes due jobs of these lanes, all under one new lease, for a registered worker; tells about the claim first.
select present, token, is_whole, sheaves, ids, due, next_due, served, lanes, run_at, attempt, lost,
    gates, id, kind, queue, priority, tenant, key, unique_key, payload, options, created_at, stops,
    exists (select from tidemill.run r where r.job = c.id)
from tidemill.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::text::json) c;

-- Takes due jobs of these lanes, all under one new lease, for a registered worker; tells about the claim first. Each
-- run is looked for by its key: as an `exists` the planner would make a hash table of all runs there are.
select present, token, is_whole, sheaves, ids, due, next_due, served, lanes, run_at, attempt, lost,
    gates, id, kind, queue, priority, tenant, key, unique_key, payload, options, created_at, stops,
    coalesce((select true from tidemill.run r where r.job = c.id limit 1), false), outdated, beyond
from tidemill.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
    $17::text::json, $18) c;

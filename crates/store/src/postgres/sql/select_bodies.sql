-- The bodies of these jobs, as far as they are there: a claim under limits reads them when its turn is over.
select b.id, b.kind, b.queue, b.priority, b.tenant, b.key, b.unique_key, b.payload::text, b.options::text, b.created_at
from unnest($1::uuid[]) i(id), lateral (
    select b.* from tidemill.job b where b.id = i.id limit 1
) b;

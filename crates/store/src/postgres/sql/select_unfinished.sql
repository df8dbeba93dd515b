-- The bodies, as far as needed, of those of these jobs that have not finished.
select j.id, j.kind, j.queue, j.priority, j.tenant, j.unique_key, (j.options ->> 'retain_ms')::int8, j.key,
    j.options ->> 'ordered', (j.options ->> 'parent')::uuid
from tidemill.job j
where j.id = any ($1::uuid[]) and not exists (select from tidemill.outcome o where o.id = j.id);

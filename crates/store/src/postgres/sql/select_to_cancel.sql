-- The bodies, as far as needed, of these jobs, and the number of the sheaf each is in if it waits.
select j.id, j.kind, j.queue, j.priority, j.tenant, j.unique_key, tidemill.retain_of(j.options),
    j.key, j.options ->> 'ordered', (j.options ->> 'parent')::uuid, tidemill.sheaf_of(j.id)
from tidemill.job j where j.id = any ($1::uuid[]);

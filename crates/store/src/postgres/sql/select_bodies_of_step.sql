-- The bodies of the jobs of a step, in the order in which they are let go.
select j.id, j.kind, j.queue, j.priority, j.tenant, j.key, j.unique_key, j.payload::text, j.options::text, j.created_at
from tidemill.job j where j.flow = $1::uuid and j.step = $2::int4 order by j.place, j.id;

-- The body of a job, locked behind all that says where the job waits.
select j.id, j.kind, j.queue, j.priority, j.tenant, j.key, j.unique_key, j.payload::text, j.options::text, j.created_at
from tidemill.job j where j.id = $1::uuid for update;

-- A body, which no attempt changes.
select id, kind, queue, priority, tenant, key, unique_key, payload, options, created_at, run_at
from tidemill_job
where id = ?1

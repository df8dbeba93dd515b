-- The bodies of the jobs of a step, in the order in which they are let go.
select id, kind, queue, priority, tenant, key, unique_key, payload, options, created_at, run_at
from tidemill_job
where flow = ?1 and step = ?2 order by id

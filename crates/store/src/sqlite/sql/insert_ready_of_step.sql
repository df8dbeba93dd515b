-- The jobs of a step that have not ended wait for a slot, all at once, from when the step is opened.
insert into tidemill_ready (queue, priority, tenant, run_at, id, kind, key, spent, lost)
select queue, priority, coalesce(tenant, ''), ?3, id, kind, coalesce(key, ''), 0, 0
from tidemill_job
where flow = ?1 and step = ?2 and not exists (select 1 from tidemill_outcome as outcome where outcome.id = tidemill_job.id)
returning queue, tenant

-- The bodies, as far as needed, of those of these jobs that have not finished, and whether the journals of their runs
-- have grown since they lost a worker the last time.
select j.id, j.kind, j.queue, j.priority, j.tenant, j.unique_key, tidemill.retain_of(j.options), j.key,
    j.options ->> 'ordered', (j.options ->> 'parent')::uuid,
    coalesce(
        (select e.at from tidemill.journal e where e.job = j.id order by e.number desc limit 1)
            >= (select max(a.ended_at) from tidemill.attempt a where a.id = j.id and a.class = 'lost'),
        false
    )
from tidemill.job j
where j.id = any ($1::uuid[]) and not exists (select from tidemill.outcome o where o.id = j.id offset 0);

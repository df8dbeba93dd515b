-- A page of finished jobs, oldest first. Bare results that a key still keeps are left out; so are jobs of flows, which
-- are kept and forgotten with their flow.
-- The size of a dead letter stands in its row's header: its payload is not read for it.
select
    outcome.id, outcome.queue, outcome.state, outcome.finished_at, outcome.retain_ms,
    iif(outcome.state = 6, coalesce(
        octet_length(outcome.error)
            + (select octet_length(payload) from tidemill_job where id = outcome.id),
        0
    ), 0)
from tidemill_outcome as outcome
where outcome.id > coalesce(?1, x'')
    and outcome.flow is null
    and (outcome.keyed < 2 or not exists (
        select 1
        from tidemill_job as job
        join tidemill_unique_key as held on held.key = job.unique_key and held.id = job.id
        where job.id = outcome.id
    ))
order by outcome.id
limit ?2

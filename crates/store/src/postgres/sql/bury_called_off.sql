-- What was called off of steps at which a saga is stuck is dead from now on; answers these jobs, and why. The flow's
-- lock is held. The attempts in whose middle they were called off are kept: nothing else tells of them.
with buried as (
    update tidemill.outcome o set state = 6
    where o.flow = $1::uuid and o.step = any ($2::int4[]) and o.state = 5
    returning o.id, o.attempt, o.error, o.token, o.worker, o.finished_at
), kept as (
    insert into tidemill.attempt (id, token, attempt, worker, started_at, ended_at, sheaf)
    select b.id, b.token, b.attempt, b.worker, b.finished_at, b.finished_at, 0 from buried b
    where b.worker is not null and b.token is not null
    on conflict do nothing
)
select b.id, j.kind, j.queue, j.tenant, b.attempt, b.error
from buried b, lateral (select j.kind, j.queue, j.tenant from tidemill.job j where j.id = b.id limit 1) j;

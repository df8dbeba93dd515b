-- What was called off of steps at which a saga is stuck is dead from now on; answers these jobs, and why. The flow's
-- lock is held.
with buried as (
    update tidemill.outcome o set state = 6
    where o.flow = $1::uuid and o.step = any ($2::int4[]) and o.state = 5
    returning o.id, o.attempt, o.error
)
select b.id, j.kind, j.queue, j.tenant, b.attempt, b.error
from buried b, lateral (select j.kind, j.queue, j.tenant from tidemill.job j where j.id = b.id limit 1) j;

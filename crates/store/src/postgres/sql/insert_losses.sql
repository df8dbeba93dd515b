-- Keeps the attempts that jobs ended with which their workers did not end: these were lost, or (without a start) gave
-- them back. Tokens of such count as stale.
insert into tidemill.attempt (id, token, attempt, worker, started_at, ended_at, class, error, sheaf)
select l.id, l.token, l.attempt, l.worker, l.claimed_at, coalesce($1::timestamptz, now()),
    case when l.claimed_at is not null then 'lost' end,
    case when l.claimed_at is not null then 'its worker was lost' end, 0
from unnest($2::uuid[], $3::int8[], $4::int2[], $5::uuid[], $6::timestamptz[])
    l(id, token, attempt, worker, claimed_at)
on conflict (id, token) do nothing;

-- Keeps the attempts in whose middle jobs lost their workers for the last time. Tokens of such
-- count as stale.
insert into tidemill.attempt (id, token, attempt, worker, started_at, ended_at, class, error, sheaf)
select l.id, l.token, l.attempt, l.worker, l.claimed_at, coalesce($1::timestamptz, now()), 'lost', 'its worker was lost', 0
from unnest($2::uuid[], $3::int8[], $4::int2[], $5::uuid[], $6::timestamptz[])
    l(id, token, attempt, worker, claimed_at)
on conflict (id, token) do nothing;

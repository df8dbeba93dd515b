-- Says where these jobs stand, in the order asked. Leases are few and walked once; all else is found by key.
with running as materialized (
    select i.id, l.token, l.worker, i.attempt, i.lost, i.id = any (l.cancelled) as called_off
    from tidemill.lease l, unnest(l.ids, l.attempts, l.losts) i(id, attempt, lost)
    where l.ids && $2::uuid[] and i.id = any ($2) and i.id <> all (l.gone)
)
select j.id, j.kind, j.queue, j.priority, j.tenant, j.key, j.unique_key, j.payload::text, j.options::text, j.created_at,
    case when o.id is not null then o.state when r.id is not null then 3::int2
        when s.run_at > coalesce($1::timestamptz, now()) then 1::int2 when s.run_at is not null then 2::int2
        else 0::int2 end as state,
    coalesce(o.attempt, r.attempt, s.attempt, 0::int2) as attempt,
    coalesce(o.lost, r.lost, s.lost, 0::int2) as lost,
    s.run_at as due_at,
    coalesce(o.worker, r.worker, a.worker) as worker, coalesce(o.token, r.token, a.token) as token,
    o.finished_at, o.output::text as output,
    case when o.id is not null then o.error else a.error end as error,
    coalesce(r.called_off, false) as cancel_requested, case when s.line = 2 then s.gate end as gate,
    (select p.progress from tidemill.stream p where p.job = q.id and p.progress is not null order by p.first desc limit 1),
    coalesce(o.bare, false)
from unnest($2) with ordinality q(id, place)
cross join lateral (select * from tidemill.job j where j.id = q.id limit 1) j
left join lateral (select * from tidemill.outcome o where o.id = q.id limit 1) o on true
left join lateral (
    select * from running r where r.id = q.id and o.id is null order by r.token desc limit 1
) r on true
left join lateral (
    select a.worker, a.token, a.error from tidemill.attempt a where a.id = q.id order by a.token desc limit 1
) a on true
left join lateral (
    select s.run_at, s.attempt, s.lost, s.line, s.gate from tidemill.ready s
    where s.seq = tidemill.sheaf_of(q.id) and q.id = any (s.ids[s.taken + 1:]) and o.id is null limit 1
) s on true
order by q.place;

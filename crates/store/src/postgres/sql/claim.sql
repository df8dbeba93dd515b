-- Takes due jobs of these lanes, each under exactly one lease, for a registered worker. Waits for nobody.
-- $3 is a lease of this worker, known to nobody yet, to widen; without it one is made. Either way the token
-- is new: another may have had one of these jobs, under a newer token, since the lease was made. $6 is, per lane, where to begin looking.
with present as materialized (
    select coalesce($1::timestamptz, now()) as now
), worker as materialized (
    -- Held to the end: whoever gives this worker up sees the lease, or there is none.
    select id from tidemill.worker where id = $2::uuid for key share
), held as materialized (
    select token from tidemill.lease where token = $3::int8 for update
), found as materialized (
    select l.lane, r.seq, r.run_at, r.attempt, r.lost, r.taken, r.ids, r.number
    from present p,
        unnest($4::text[], $5::int2[], $6::timestamptz[]) with ordinality l(queue, priority, low, lane),
        lateral (
            select r.seq, r.run_at, r.attempt, r.lost, r.taken, r.ids, cardinality(r.ids) - r.taken as number
            from tidemill.ready r
            where r.queue = l.queue and r.priority = l.priority
                and r.run_at <= p.now and r.run_at >= coalesce(l.low, '-infinity')
                and ($7::text[] is null or r.kind = any ($7))
            order by r.run_at, r.seq
            limit $8::int8
            for update skip locked
        ) r
    where exists (select from worker) and ($3 is null or exists (select from held))
    limit $8
), used as materialized (
    select f.*, least(f.number, $9::int8 - f.before) as take
    from (select *, sum(number) over (order by lane, run_at, seq) - number as before from found) f
    where f.before < $9
), emptied as (
    delete from tidemill.ready where seq = any (array(select seq from used where take = number))
), cut as (
    update tidemill.ready set taken = taken + (select take from used where take < number)
    where seq = (select seq from used where take < number)
), job as materialized (
    select u.lane, u.run_at, i.id, u.attempt, u.lost
    from used u, unnest(u.ids[u.taken + 1:u.taken + u.take]) with ordinality i(id, place)
    order by u.lane, u.run_at, u.seq, i.place
), opened as (
    insert into tidemill.lease (worker, ask, claimed_at, ids, attempts, losts)
    select $2, $10::uuid, p.now, array_agg(j.id), array_agg(j.attempt), array_agg(j.lost)
    from job j, present p where $3 is null group by p.now
    returning token
), widened as (
    update tidemill.lease l
    set token = default, ask = $10, ids = l.ids || array(select id from job), attempts = l.attempts || array(select attempt from job),
        losts = l.losts || array(select lost from job)
    where l.token = $3 and exists (select from job)
    returning l.token
), head as materialized (
    select p.now, (select count(*) from found) as sheaves, (select sum(number)::int8 from found) as ids,
        case when (select coalesce(sum(take), 0) from used) < $9 then (
            select min(r.run_at)
            from unnest($4::text[], $5::int2[]) l(queue, priority), lateral (
                select r.run_at from tidemill.ready r
                where r.queue = l.queue and r.priority = l.priority and r.run_at > p.now
                order by r.run_at limit 1
            ) r
        ) end as next_due,
        case when (select coalesce(sum(take), 0) from used) < $9 and exists (select from worker) then exists (
            -- Due, but in the hands of another or beyond the number of sheaves asked for.
            select from unnest($4::text[], $5::int2[], $6::timestamptz[]) l(queue, priority, low), lateral (
                select from tidemill.ready r
                where r.queue = l.queue and r.priority = l.priority
                    and r.run_at <= p.now and r.run_at >= coalesce(l.low, '-infinity')
                    and ($7::text[] is null or r.kind = any ($7))
                    and r.seq <> all (array(select seq from found))
                limit 1
            ) r
        ) else false end as more
    from present p
)
select h.now, h.sheaves, coalesce(h.ids, 0) as ids, h.next_due, h.more,
    coalesce((select token from opened), (select token from widened)) as token,
    j.lane, j.run_at, j.attempt, j.lost,
    b.id, b.kind, b.queue, b.priority, b.tenant, b.key, b.unique_key, b.payload, b.options, b.created_at
from head h left join (job j cross join lateral (
    select b.id, b.kind, b.queue, b.priority, b.tenant, b.key, b.unique_key, b.payload::text as payload,
        b.options::text as options, b.created_at
    from tidemill.job b where b.id = j.id limit 1
) b) on true;

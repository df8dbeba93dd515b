-- Jobs in line that the deadlines of their queue make late: to start, due by $2 and never begun; to finish, enqueued by
-- $3, or replayed. Nobody's due time is before his enqueue; one that was put off, or had a delay, became due later: of
-- what did by $5, at most $6 of each band are looked at. Those that have a deadline of their own are looked at by that.
with late as (
    select s.id, r.run_at, r.attempt
    from unnest('{0,1,2,3}'::int2[]) b(priority), lateral (
        select r.run_at, r.attempt, r.ids[r.taken + 1:] as ids from tidemill.ready r
        where r.queue = $1::text and r.priority = b.priority and r.tenant = '' and r.line < 2
            and r.run_at <= greatest($2::timestamptz, $3::timestamptz)
        union all
        select r.run_at, r.attempt, r.ids[r.taken + 1:] from tidemill.ready r
        where r.queue = $1 and r.priority = b.priority and r.tenant <> '' and r.line < 2
            and r.run_at <= greatest($2, $3)
        union all
        (select r.run_at, r.attempt, array[s.id] from tidemill.ready r, unnest(r.ids[r.taken + 1:]) s(id)
        where r.queue = $1 and r.priority = b.priority and r.tenant = '' and r.line < 2
            and r.run_at > greatest($2, $3) and r.run_at <= $5::timestamptz
        order by r.run_at limit $6::int8)
        union all
        (select r.run_at, r.attempt, array[s.id] from tidemill.ready r, unnest(r.ids[r.taken + 1:]) s(id)
        where r.queue = $1 and r.priority = b.priority and r.tenant <> '' and r.line < 2
            and r.run_at > greatest($2, $3) and r.run_at <= $5
        order by r.run_at limit $6)
    ) r, lateral unnest(r.ids) s(id)
)
select l.id
from late l, lateral (
    select j.options, j.created_at from tidemill.job j where j.id = l.id limit 1
) j
-- Its journal is looked at last: most need not be.
where case when l.attempt = 0 and l.run_at <= $2 and j.options ->> 'start_within_ms' is null
        then not tidemill.has_begun(l.id, j.options) else false end
    or j.created_at <= $3 and j.options ->> 'finish_within_ms' is null
        and coalesce((j.options ->> 'replayed_at')::timestamptz <= $3, true)
limit $4::int8;

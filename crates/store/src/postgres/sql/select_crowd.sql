-- What stands in each band of a queue: jobs that are due, those that wait for the clock and those that wait to be woken,
-- each counted up to $3 sheaves with and without a tenant; when the next and the last are due; and the kinds of those
-- that were looked at. What gates hold is not counted.
select coalesce(sum(s.jobs) filter (where s.run_at <= p.now), 0)::int8,
    coalesce(sum(s.jobs) filter (where s.run_at > p.now and s.run_at < '9999-01-01Z'), 0)::int8,
    coalesce(sum(s.jobs) filter (where s.run_at >= '9999-01-01Z'), 0)::int8,
    min(s.run_at) filter (where s.run_at > p.now and s.run_at < '9999-01-01Z'),
    (select max(l.run_at) from (
        (select r.run_at from tidemill.ready r
        where r.queue = $2::text and r.priority = b.band and r.tenant = '' and r.line < 2
            and r.run_at > p.now and r.run_at < '9999-01-01Z' order by r.run_at desc limit 1)
        union all
        (select r.run_at from tidemill.ready r
        where r.queue = $2 and r.priority = b.band and r.tenant <> '' and r.line < 2
            and r.run_at > p.now and r.run_at < '9999-01-01Z' order by r.run_at desc limit 1)
        union all
        (select r.run_at from tidemill.ready r
        where r.queue = $2 and r.priority = b.band and r.line = 3
            and r.run_at > p.now and r.run_at < '9999-01-01Z' order by r.run_at desc limit 1)
    ) l),
    coalesce(array_agg(distinct s.kind) filter (where s.kind is not null), '{}')
from (select coalesce($1::timestamptz, now()) as now) p
cross join unnest('{0,1,2,3}'::int2[]) b(band)
left join lateral (
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken as jobs from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.tenant = '' and r.line < 2 and r.run_at <= p.now
    order by r.run_at limit $3::int8)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.tenant = '' and r.line < 2
        and r.run_at > p.now and r.run_at < '9999-01-01Z' order by r.run_at limit $3)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.tenant = '' and r.line < 2 and r.run_at >= '9999-01-01Z'
    order by r.run_at limit $3)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.tenant <> '' and r.line < 2 and r.run_at <= p.now
    order by r.run_at limit $3)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.tenant <> '' and r.line < 2
        and r.run_at > p.now and r.run_at < '9999-01-01Z' order by r.run_at limit $3)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.tenant <> '' and r.line < 2 and r.run_at >= '9999-01-01Z'
    order by r.run_at limit $3)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.line = 3 and r.run_at < '9999-01-01Z'
    order by r.run_at limit $3)
    union all
    (select r.run_at, r.kind, cardinality(r.ids) - r.taken from tidemill.ready r
    where r.queue = $2 and r.priority = b.band and r.line = 3 and r.run_at >= '9999-01-01Z'
    order by r.run_at limit $3)
) s on true
group by p.now, b.band;

-- What is before a job that waits; every count goes up to $4, so that nobody walks over a million.
with own as materialized (
    select s.*, coalesce($1::timestamptz, now()) as present,
        array_position(s.ids[s.taken + 1:], $2::uuid) - 1 as before
    from tidemill.ready s where s.seq = tidemill.sheaf_of($2) and $2 = any (s.ids[s.taken + 1:])
)
select
    least($4::int8, (case when o.line <> 2 then o.before else 0 end + (
        select coalesce(sum(n.number), 0) from (
            select cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.queue = o.queue and r.priority = o.priority and r.tenant = '' and r.line < 2
                and (r.run_at, r.seq + 0) < (o.run_at, o.seq) limit $4
        ) n
    ) + (
        select coalesce(sum(n.number), 0) from (
            select cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.queue = o.queue and r.priority = o.priority and r.tenant <> '' and r.line < 2
                and r.run_at <= o.run_at and (r.run_at < o.run_at or r.seq < o.seq) limit $4
        ) n
    ) + (
        select coalesce(sum(n.number), 0) from (
            select cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.queue = o.queue and r.priority = o.priority and r.line = 3
                and r.run_at <= o.run_at and (r.run_at < o.run_at or r.seq < o.seq) limit $4
        ) n
    )))::int8,
    least($4::int8, (case when o.line <> 2 then o.before else 0 end + (
        select coalesce(sum(n.number), 0) from (
            select cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.queue = o.queue and r.priority = o.priority and r.tenant = o.tenant and r.line < 2
                and (r.run_at, r.seq + 0) < (o.run_at, o.seq) limit $4
        ) n
    ) + (
        -- One tenant's among those of all: read no further than this many.
        select coalesce(sum(n.number) filter (where n.tenant = o.tenant), 0) from (
            select r.tenant, cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.queue = o.queue and r.priority = o.priority and r.line = 3
                and r.run_at <= o.run_at and (r.run_at < o.run_at or r.seq < o.seq) limit $4
        ) n
    )))::int8,
    case when o.line = 2 then least($4::int8, (o.before + (
        select coalesce(sum(n.number), 0) from (
            select cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.line = 2 and r.gate = o.gate and r.queue = o.queue and r.priority = o.priority
                and r.tenant = o.tenant and (r.run_at, r.seq + 0) < (o.run_at, o.seq)
            limit $4
        ) n
    ) + case when exists (
        -- Others with whom it takes turns.
        select from tidemill.ready r where r.line = 2 and r.gate = o.gate
            and (r.queue, r.priority, r.tenant) < (o.queue, o.priority, o.tenant)
    ) or exists (
        select from tidemill.ready r where r.line = 2 and r.gate = o.gate
            and (r.queue, r.priority, r.tenant) > (o.queue, o.priority, o.tenant)
    ) then $4 else 0 end)) else 0 end::int8,
    array(
        select least($4::int8, (case when b.band = o.priority then 0 else (
            select coalesce(sum(n.number), 0) from (
                select cardinality(r.ids) - r.taken as number from tidemill.ready r
                where r.queue = o.queue and r.priority = b.band and r.tenant = '' and r.line < 2
                    and r.run_at <= o.present limit $4
            ) n
        ) + (
            select coalesce(sum(n.number), 0) from (
                select cardinality(r.ids) - r.taken as number from tidemill.ready r
                where r.queue = o.queue and r.priority = b.band and r.tenant <> '' and r.line < 2
                    and r.run_at <= o.present limit $4
            ) n
        ) + (
            select coalesce(sum(n.number), 0) from (
                select cardinality(r.ids) - r.taken as number from tidemill.ready r
                where r.queue = o.queue and r.priority = b.band and r.line = 3 and r.run_at <= o.present limit $4
            ) n
        ) end))::int8
        from unnest('{0,1,2,3}'::int2[]) b(band) order by b.band
    ),
    (select t.tenants from tidemill.tenants_in_turn(o.present, o.queue, o.priority, $3::text, $5::int4) t)
from own o;

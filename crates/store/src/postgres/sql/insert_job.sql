-- Writes a batch of jobs without unique keys, all or none, in sheaves of one queue, band, kind, tenant, key
-- and due time.
-- The sheaves number on from one number of the sequence, so that no join is needed to tell a job its sheaf.
-- Unless $20, it writes nothing where a queue may have a bound, and says so: that is judged elsewhere.
with present as materialized (
    select coalesce($1::timestamptz, now()) as now, nextval('tidemill.sheaf') as first
    where $20::boolean or not exists (
        select from tidemill.queue q
        where q.depth_max is not null and exists (select from unnest($3::text[]) n where tidemill.means(q.name, n)))
), sheaf as (
    insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
    select p.first + s.number, s.queue, s.priority,
        greatest(p.now, coalesce(s.at, p.now + s.delay_us * interval '1 us')),
        s.kind, coalesce(s.tenant, ''), coalesce(s.key, ''), ($2::uuid[])[s.first_at:s.last_at]
    from present p,
        unnest($3::text[], $4::int2[], $5::text[], $6::text[], $7::timestamptz[], $8::int8[], $9::int4[], $10::int4[],
            $19::text[])
        with ordinality s(queue, priority, kind, tenant, at, delay_us, first_at, last_at, key, number)
), body as (
    insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at)
    select j.id, j.kind, j.queue, j.priority, j.tenant, j.key, p.first + j.number, j.payload::json, j.options::json,
        p.now
    from present p,
        unnest($2::uuid[], $11::text[], $12::text[], $13::int2[], $14::text[], $15::text[], $16::int4[], $17::text[],
            $18::text[]) j(id, kind, queue, priority, tenant, key, number, payload, options)
)
select true from present;

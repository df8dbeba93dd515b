-- Puts jobs back into sheaves after an attempt that did not finish them, and keeps what the attempt said.
with present as materialized (
    select coalesce($1::timestamptz, now()) as now, nextval('tidemill.sheaf') as first
), sheaf as (
    insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, attempt, lost, ids)
    select p.first + s.number, s.queue, s.priority, p.now + s.delay_us * interval '1 us', s.kind,
        coalesce(s.tenant, ''), coalesce(s.key, ''), s.attempt, s.lost, ($2::uuid[])[s.first_at:s.last_at]
    from present p,
        unnest($3::text[], $4::int2[], $5::text[], $6::text[], $7::int8[], $8::int2[], $9::int2[], $10::int4[],
            $11::int4[], $20::text[])
        with ordinality s(queue, priority, kind, tenant, delay_us, attempt, lost, first_at, last_at, key, number)
)
insert into tidemill.attempt (id, token, attempt, worker, started_at, ended_at, class, error, next_at, sheaf)
select i.id, i.token, i.attempt, i.worker, i.started_at, p.now, i.class, i.error,
    p.now + i.delay_us * interval '1 us', p.first + i.number
from present p,
    unnest($2::uuid[], $12::int8[], $13::int2[], $14::uuid[], $15::timestamptz[], $16::text[], $17::text[],
        $18::int8[], $19::int4[])
    i(id, token, attempt, worker, started_at, class, error, delay_us, number);

-- Writes one plain job where its queue is known to have no bound: what insert_one_job.sql does, without the look.
with sheaf as (
    insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
    values (nextval('tidemill.sheaf'), $4, $5,
        greatest(coalesce($1::timestamptz, now()),
            coalesce($8::timestamptz, coalesce($1::timestamptz, now()) + $9::int8 * interval '1 us')),
        $3, coalesce($6, ''), coalesce($7, ''), array[$2::uuid])
    returning seq
)
insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at)
select $2, $3, $4, $5, $6, $7, s.seq, $10::json, $11::json, coalesce($1::timestamptz, now()) from sheaf s;

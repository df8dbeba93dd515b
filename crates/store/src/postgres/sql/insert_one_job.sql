-- Writes one job without a unique key, in a sheaf of its own: what insert_job.sql does, at two thirds of its price.
with sheaf as (
    insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
    select nextval('tidemill.sheaf'), $4, $5,
        greatest(coalesce($1::timestamptz, now()),
            coalesce($8::timestamptz, coalesce($1::timestamptz, now()) + $9::int8 * interval '1 us')),
        $3, coalesce($6, ''), coalesce($7, ''), array[$2::uuid]
    where not exists (
        select from tidemill.queue q where q.depth_max is not null and tidemill.means(q.name, $4))
    returning seq
), body as (
    insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at)
    select $2, $3, $4, $5, $6, $7, s.seq, $10::json, $11::json, coalesce($1::timestamptz, now()) from sheaf s
)
select true from sheaf;

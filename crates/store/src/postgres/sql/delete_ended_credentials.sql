-- Forgets credentials that ended long ago, and the oldest of those that have ended when there are too many.
with p as (select coalesce($1::timestamptz, now()) as now),
last as (
    select c.id from tidemill.credential c, p
    where least(c.revoked_at, c.expires_at) <= p.now
    order by c.id desc offset $3::int8 limit 1
)
delete from tidemill.credential c using p
where least(c.revoked_at, c.expires_at) < p.now - $2::int8 * interval '1 us'
    or (least(c.revoked_at, c.expires_at) <= p.now and c.id <= (select id from last));

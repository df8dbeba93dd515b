-- Says that a worker lives; answers whether it is known, which of its running jobs were called off, and its own lease.
with beat as (
    update tidemill.worker set beat_at = coalesce($1::timestamptz, now()) where id = $2::uuid returning lease_us
)
select exists (select from beat), array(
    select c from tidemill.lease l, unnest(l.cancelled) c
    where l.worker = $2 and c <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = c offset 0)
), (select lease_us from beat);

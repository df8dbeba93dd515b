-- Announces a worker; announced again it beats, and says of itself what it says now.
insert into tidemill.worker as w (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at, lease_us)
select $2::uuid, $3::text, $4::text[], $5::text[], $6::int4, least(2 * $6::int8, 2147483647)::int4, $8::text, p.now, p.now, $7::int8
from (select coalesce($1::timestamptz, now()) as now) p
on conflict (id) do update
set name = excluded.name, queues = excluded.queues, kinds = excluded.kinds, slots = excluded.slots,
    reach = greatest(w.reach, excluded.reach), slots_of = excluded.slots_of, beat_at = excluded.beat_at, lease_us = excluded.lease_us;

-- Puts mail into the boxes of runs and wakes those that wait for it; answers the queues of these, and the places of
-- signals for which there is no room.
select d.queue, d.refused
from tidemill.deliver(
    $2::uuid[], $3::text[], $4::text[], $5::int8[], $6::int8, $7::int8, coalesce($1::timestamptz, now())) d
where d.queue is not null or d.refused is not null;

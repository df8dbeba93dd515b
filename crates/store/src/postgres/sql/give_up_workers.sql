-- Gives up workers that have been silent for their lease, or for $2, each by one rescuer only; one that claims now is
-- alive. Only those whose lease is not longer than $3, if given: before, nobody could have heard them.
delete from tidemill.worker where id = any (array(
    select id from tidemill.worker
    where beat_at < coalesce($1::timestamptz, now()) - coalesce(lease_us, $2::int8) * interval '1 us'
        and ($3::int8 is null or coalesce(lease_us, $2) <= $3)
    for update skip locked))
returning id;

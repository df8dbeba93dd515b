-- Says whether any worker has been silent for too long, as `give_up_workers`; cheap, because it is asked often.
select exists (
    select from tidemill.worker
    where beat_at < coalesce($1::timestamptz, now()) - coalesce(lease_us, $2::int8) * interval '1 us'
        and ($3::int8 is null or coalesce(lease_us, $2) <= $3));

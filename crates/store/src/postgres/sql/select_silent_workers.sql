-- Says whether any worker has been silent for too long; cheap, because it is asked often.
select exists (
    select from tidemill.worker where beat_at < coalesce($1::timestamptz, now()) - $2::int8 * interval '1 us');

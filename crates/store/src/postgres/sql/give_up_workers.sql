-- Gives up workers that have been silent for too long, each by one rescuer only; one that claims now is alive.
delete from tidemill.worker where id = any (array(
    select id from tidemill.worker
    where beat_at < coalesce($1::timestamptz, now()) - $2::int8 * interval '1 us'
    for update skip locked))
returning id;

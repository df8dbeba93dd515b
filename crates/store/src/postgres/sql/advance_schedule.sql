-- Steps from a slot that has come to the next; no row unless it waits for just this one, in this version.
update tidemill.schedule set next_at = $5::timestamptz
where name = $2::text and version = $3::int8 and next_at = $4::timestamptz and not paused
    and next_at <= coalesce($1::timestamptz, now())
returning last_job;

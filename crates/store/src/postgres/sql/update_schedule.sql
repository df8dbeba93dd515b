-- Changes a schedule, and gives it a larger version. Its next slot stays if so wished.
update tidemill.schedule
set owner = $3::text, version = version + 1, paused = $4::bool, definition = $5::text::json,
    next_at = case when $7::bool then next_at else $6::timestamptz end,
    changed_at = coalesce($1::timestamptz, now())
where name = $2::text;

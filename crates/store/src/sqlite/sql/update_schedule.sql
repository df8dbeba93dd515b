-- Changes a schedule, and gives it a larger version. Its next slot stays if so wished.
update tidemill_schedule
set owner = ?3, version = version + 1, paused = ?4, definition = ?5,
    next_at = case when ?7 then next_at else ?6 end, changed_at = ?1
where name = ?2

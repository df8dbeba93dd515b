-- Writes how far a step is.
update tidemill_flow_step
set state = ?4, left = ?5, ok = ?6, failed = ?7, parents_left = ?8, came = ?9, met = ?10, missed = ?11, reason = ?12,
    alarms = ?13, lost = ?14, refused = ?15,
    call_off = call_off and ?4 < 3,
    started_at = case when ?4 = 0 then null when ?4 < 5 then coalesce(started_at, ?1) else started_at end,
    ended_at = case when ?4 > 2 then coalesce(ended_at, ?1) end
where flow = ?2 and number = ?3

-- Writes a flow, unless it is there already.
insert or ignore into tidemill_flow (
    id, name, state, steps_left, at_once, created_at, within_ms, retain_ms, retain_failed_ms, saga
)
values (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

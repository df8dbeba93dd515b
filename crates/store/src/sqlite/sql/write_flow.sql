-- Writes a flow, unless it is there already.
insert or ignore into tidemill_flow (
    id, name, state, at_once, created_at, within_ms, retain_ms, retain_failed_ms, saga, expires_at
)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, iif(?3 = 0, null, ?5 + 1000 * ?6))

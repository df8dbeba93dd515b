-- How far a plan has come. One that is applied is kept from then on.
update tidemill_plan
set stage = ?2, reached = ?3, done = done + ?4, passed = passed + ?5, undone = undone + ?6, stayed = stayed + ?7,
    applied_at = iif(?2 = 2, coalesce(applied_at, ?8), applied_at), undone_at = iif(?2 = 4, ?8, undone_at),
    kept_until = max(kept_until, ?9)
where id = ?1

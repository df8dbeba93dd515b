-- What became of an act, on what it turned out to be, with more to say of it; what was said of it stays.
update tidemill_audit
set ended_at = ?2, result = ?3, is_refused = ?7, target_kind = coalesce(?4, target_kind),
    target = coalesce(?5, target), detail = trim(detail || ' ' || ?6)
where id = ?1 and result is null

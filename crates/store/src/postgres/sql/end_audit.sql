-- What became of an act, on what it turned out to be, with more to say of it; what was said of it stays.
update tidemill.audit
set ended_at = coalesce($1::timestamptz, now()), result = $3::text, is_refused = $7::bool,
    target_kind = coalesce($4::text, target_kind), target = coalesce($5::text, target),
    detail = btrim(detail || ' ' || $6::text)
where id = $2::uuid and result is null;

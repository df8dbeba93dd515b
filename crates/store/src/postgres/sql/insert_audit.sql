-- Writes down an act that is about to be done. Written again, it is the same.
insert into tidemill.audit (id, at, who, credential, act, target_kind, target, detail)
values ($2::uuid, coalesce($1::timestamptz, now()), $3::text, $4::uuid, $5::text, $6::text, $7::text, $8::text)
on conflict (id) do nothing;

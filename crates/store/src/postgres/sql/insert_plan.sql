-- Keeps a plan, whose letters are written.
insert into tidemill.plan (id, act, filter, groups, by_whom, why, letters, made_at, expires_at, kept_until)
select $2::uuid, $3::text::json, $4::text::json, $5::text::json, $6::text, $7::text, $8::int8, t.at,
    t.at + $9::int8 * interval '1 us', t.at + $10::int8 * interval '1 us'
from (select coalesce($1::timestamptz, now()) as at) t;

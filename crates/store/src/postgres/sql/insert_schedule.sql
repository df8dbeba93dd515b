-- Makes a schedule; fails when there is one of its name. Its versions begin with the time: one that had its name before
-- had smaller ones.
insert into tidemill.schedule (name, owner, version, paused, definition, next_at, made_at, changed_at)
select $2::text, $3::text, (extract(epoch from p.now) * 1000000)::int8, $4::bool, $5::text::json, $6::timestamptz, p.now, p.now
from (select coalesce($1::timestamptz, now()) as now) p;

-- How far a plan has come. One that is applied is kept from then on.
update tidemill.plan p
set stage = $3::int2, reached = $4::uuid, done = p.done + $5::int8, passed = p.passed + $6::int8,
    undone = p.undone + $7::int8, stayed = p.stayed + $8::int8,
    applied_at = case when $3 = 2 then coalesce(p.applied_at, t.at) else p.applied_at end,
    undone_at = case when $3 = 4 then t.at else p.undone_at end,
    kept_until = greatest(p.kept_until, t.at + $9::int8 * interval '1 us')
from (select coalesce($1::timestamptz, now()) as at) t
where p.id = $2::uuid;

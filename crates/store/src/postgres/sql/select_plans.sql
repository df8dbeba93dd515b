-- A page of plans, newest first.
select p.id, p.stage, p.act::text, p.filter::text, p.groups::text, p.by_whom, p.why, p.letters, p.made_at, p.expires_at,
    p.applied_at, p.undone_at, p.done, p.passed, p.undone, p.stayed
from tidemill.plan p where p.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
order by p.id desc limit $2::int8;

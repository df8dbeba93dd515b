-- A plan, and how far it has come.
select p.id, p.stage, p.act::text, p.filter::text, p.groups::text, p.by_whom, p.why, p.letters, p.made_at, p.expires_at,
    p.applied_at, p.undone_at, p.done, p.passed, p.undone, p.stayed
from tidemill.plan p where p.id = $1::uuid;

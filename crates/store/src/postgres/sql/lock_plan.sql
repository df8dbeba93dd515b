-- A plan, which nobody else applies or undoes from now on; where it goes on, and whether its time is over.
select p.id, p.stage, p.act::text, p.filter::text, p.groups::text, p.by_whom, p.why, p.letters, p.made_at, p.expires_at,
    p.applied_at, p.undone_at, p.done, p.passed, p.undone, p.stayed,
    p.reached, p.expires_at <= coalesce($1::timestamptz, now())
from tidemill.plan p where p.id = $2::uuid for update;

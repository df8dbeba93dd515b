-- A plan, and how far it has come.
select
    id, stage, act, filter, groups, by, why, letters, made_at, expires_at, applied_at, undone_at,
    done, passed, undone, stayed, reached
from tidemill_plan
where id = ?1

-- A page of plans, newest first.
select
    id, stage, act, filter, groups, by, why, letters, made_at, expires_at, applied_at, undone_at,
    done, passed, undone, stayed, reached
from tidemill_plan
where ?1 is null or id < ?1
order by id desc
limit ?2

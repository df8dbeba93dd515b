-- The schedules that fire next and do not rest, soonest first.
select definition, version, paused, next_at, last_slot, last_job, made_at, changed_at, forgot_from,
    forgot_until, forgot_filled_from, forgot_filled_until
from tidemill_schedule
where paused = 0 and next_at is not null
order by next_at
limit ?1

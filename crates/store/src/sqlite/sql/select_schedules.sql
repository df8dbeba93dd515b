-- The schedules of this name or owner, or all, by name, after ?3; at most ?4, or all (-1).
select definition, version, paused, next_at, last_slot, last_job, made_at, changed_at, forgot_from,
    forgot_until, forgot_filled_from, forgot_filled_until
from tidemill_schedule
where (?1 is null or name = ?1) and (?2 is null or owner = ?2) and (?3 is null or name > ?3)
order by name
limit ?4

-- The schedules of this name or owner, or all, by name.
select definition::text, version, paused, next_at, last_slot, last_job, made_at, changed_at
from tidemill.schedule
where ($1::text is null or name = $1) and ($2::text is null or owner = $2)
order by name;

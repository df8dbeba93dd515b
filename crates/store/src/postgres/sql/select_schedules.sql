-- The schedules of this name or owner, or all, by name, after $3; at most $4, or all (null).
select definition::text, version, paused, next_at, last_slot, last_job, made_at, changed_at, forgot_from,
    forgot_until, forgot_filled_from, forgot_filled_until
from tidemill.schedule
where ($1::text is null or name = $1) and ($2::text is null or owner = $2)
    and ($3::text is null or name > $3)
order by name
limit $4::int8;

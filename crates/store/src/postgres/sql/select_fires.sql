-- The history of a schedule, latest first.
select slot, until, slots, what, how, job, jobs, at
from tidemill.schedule_fire where name = $1::text
order by number desc limit $2::int8;

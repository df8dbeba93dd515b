-- The history of a schedule, latest first.
select slot, until, slots, what, how, job, jobs, at
from tidemill_schedule_fire where name = ?1
order by number desc limit ?2

-- The first due jobs of a lane, in order of due time and age.
select run_at, id, spent, lost
from tidemill_ready
where queue = ?1 and priority = ?2 and run_at <= ?3
order by run_at, id
limit ?4

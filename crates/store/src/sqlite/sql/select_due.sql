-- The first due jobs of a tenant in a lane, in order of due time and age.
select run_at, id, spent, lost, kind, key
from tidemill_ready
where queue = ?1 and priority = ?2 and tenant = ?3 and run_at <= ?4
order by run_at, id
limit ?5

-- The first due jobs of these kinds of a tenant in a lane, in order of due time and age; others stay.
select run_at, id, spent, lost, kind, key
from tidemill_ready
where queue = ?1 and priority = ?2 and tenant = ?3 and run_at between ?7 and ?4
    and kind in (select value from json_each(?6))
order by run_at, id
limit ?5

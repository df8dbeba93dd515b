-- The first due jobs of these kinds in a lane, in order of due time and age; others stay.
select run_at, id, spent, lost
from tidemill_ready
where queue = ?1 and priority = ?2 and run_at between ?6 and ?3
    and kind in (select value from json_each(?5))
order by run_at, id
limit ?4

-- How many jobs all workers together may hold, and how many this one.
select coalesce(sum(w.reach), 0)::int8, (select o.reach from tidemill.worker o where o.id = $1::uuid)
from tidemill.worker w;

-- How many jobs a worker may hold at once, and how many it does. Of leases only the length of what they hold is read.
select reach, (select coalesce(sum(length(jobs)), 0) / 20 from tidemill_lease where worker = ?1)
from tidemill_worker where id = ?1

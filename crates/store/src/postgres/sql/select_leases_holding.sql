-- Locks the leases that hold any of these jobs, in order, and says which, and which were called off before.
select token, worker, array(select i from unnest(ids) i where i = any ($1::uuid[]) and i <> all (gone)), cancelled
from tidemill.lease where ids && $1 order by token for update;

-- Ends the leases of workers that are gone; from here on their tokens are stale. Waits for settles in flight,
-- in the order in which they lock.
delete from tidemill.lease where token = any (array(
    select token from tidemill.lease where worker = any ($1::uuid[]) order by token for update))
returning token, worker, ids, attempts, losts, gone, cancelled, reasons, claimed_at;

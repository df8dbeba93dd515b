-- Ends the leases of workers that are gone; from here on their tokens are stale. Waits for settles in flight.
delete from tidemill.lease where worker = any ($1::uuid[])
returning token, worker, ids, attempts, losts, gone, cancelled, reasons;

-- Forgets a worker. Waits for its claims in flight, so that their leases are seen by the next statement.
delete from tidemill.worker where id = $1::uuid;

-- Locks the leases that lost claims of a worker have made or widened.
select token, worker, ids, attempts, losts, gone, cancelled, reasons, claimed_at from tidemill.lease
where worker = $1::uuid and ask = any ($2::uuid[]) order by token for update;

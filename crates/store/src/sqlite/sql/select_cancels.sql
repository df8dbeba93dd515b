-- The running jobs of a worker that were called off.
select cancel.id
from tidemill_lease as lease
join tidemill_cancel as cancel on cancel.token = lease.token
where lease.worker = ?1 and lease.cancels > 0

-- Who is inside a gate, by worker.
select lease.worker, sum(permit.held)
from tidemill_permit as permit join tidemill_lease as lease on lease.token = permit.token
where permit.gate = ?1 and permit.held > 0
group by lease.worker order by lease.worker

-- The gates that jobs of a lease are inside of.
select permit.gate
from tidemill_lease as lease, json_each(lease.gates) as gate
join tidemill_permit as permit on permit.gate = gate.value and permit.token = lease.token
where lease.token = ?1 and permit.held > 0

-- Who is inside a gate (?2, of the limit ?1), by worker; with a permit or without, unless that is known otherwise (?3).
select lease.worker, sum(inside.number)
from (
    select token, held as number from tidemill_permit where gate = ?2 and held > 0
    union all
    select one.token, 1 from tidemill_stowaway as one join tidemill_lease as own on own.token = one.token
    where not ?3 and one.base = ?1 and one.gate = ?2 and instr(own.jobs, one.id) > 0
) as inside join tidemill_lease as lease on lease.token = inside.token
group by lease.worker order by lease.worker

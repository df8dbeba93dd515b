-- Whether a limit has stowaways that still run, at any of its gates.
select exists (
    select 1 from tidemill_stowaway as one join tidemill_lease as lease on lease.token = one.token
    where one.base = ?1 and instr(lease.jobs, one.id) > 0
)

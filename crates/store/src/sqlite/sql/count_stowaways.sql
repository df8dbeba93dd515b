-- How many stowaways of a gate still run; no more than ?3 are counted.
select count(*) from (
    select 1 from tidemill_stowaway as one join tidemill_lease as lease on lease.token = one.token
    where one.base = ?1 and one.gate = ?2 and instr(lease.jobs, one.id) > 0
    limit ?3
)

-- Forgets stowaways whose attempt has ended: their lease does not name them any more.
delete from tidemill_stowaway where not exists (
    select 1 from tidemill_lease as lease
    where lease.token = tidemill_stowaway.token and instr(lease.jobs, tidemill_stowaway.id) > 0
)

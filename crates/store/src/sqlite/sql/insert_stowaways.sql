-- A job that runs is inside of a gate. Who went in by it has a permit, and is no stowaway.
insert into tidemill_stowaway (base, gate, token, id)
select ?1, ?2, ?3, ?4 where not exists (select 1 from tidemill_permit where gate = ?2 and token = ?3)

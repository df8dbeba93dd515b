-- Forgets stowaways whose attempt has ended. Waits for nobody: whoever changes rules finds all of them anew.
delete from tidemill.stowaway s using (
    select s.base, s.gate, s.token, s.id from tidemill.stowaway s where not tidemill.is_aboard(s.token, s.id)
    for update skip locked
) e
where (s.base, s.gate, s.token, s.id) = (e.base, e.gate, e.token, e.id);

-- Whether somebody of a lease has a permit of a gate.
select 1 from tidemill_permit where gate = ?1 and token = ?2

-- The gates whose probe is of this lease: of those that are broken, which are few.
select name from tidemill_gate where probing > 0 and probe = ?1

-- The gates whose probe is of this lease.
select name from tidemill_gate where probe = ?1

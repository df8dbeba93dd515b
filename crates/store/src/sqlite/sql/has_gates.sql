-- Whether any gate of a limit has something to remember.
select exists (select 1 from tidemill_gate where base = ?1)

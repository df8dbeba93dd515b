-- Whether a gate holds somebody.
select exists (select 1 from tidemill_ready where line = 2 and gate = ?1)

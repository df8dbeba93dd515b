-- How many are held at a gate.
select count(*) from tidemill_ready where line = 2 and gate = ?1

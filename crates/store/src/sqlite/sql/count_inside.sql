-- How many jobs are inside a gate.
select coalesce(sum(held), 0) from tidemill_permit where gate = ?1

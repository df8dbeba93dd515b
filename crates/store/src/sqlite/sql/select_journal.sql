-- The journal of a run, in order.
select number, at, entry from tidemill_journal where job = ?1 order by number

-- Forgets the journal of a run.
delete from tidemill_journal where job = ?1

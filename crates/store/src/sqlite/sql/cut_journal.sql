-- Forgets the journal of a run that does not run from an entry on.
delete from tidemill_journal where job = ?1 and number >= ?2

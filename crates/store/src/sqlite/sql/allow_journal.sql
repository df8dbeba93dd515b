-- Lets the journal of a run have so many entries.
update tidemill_run set journal_entries_max = ?2 where job = ?1

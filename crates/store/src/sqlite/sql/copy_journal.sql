-- Gives a new run the journal of another, up to before an entry, with what stands beside.
insert into tidemill_journal (job, number, at, entry, value)
select ?2, number, at, entry, value from tidemill_journal where job = ?1 and number < ?3

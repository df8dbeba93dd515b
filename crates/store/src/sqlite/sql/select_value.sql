-- What stands beside an entry, and the entry as it is then.
select value, entry from tidemill_journal where job = ?1 and number = ?2 and value is not null

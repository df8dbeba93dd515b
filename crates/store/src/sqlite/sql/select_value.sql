-- What stands beside an entry.
select value from tidemill_journal where job = ?1 and number = ?2 and value is not null

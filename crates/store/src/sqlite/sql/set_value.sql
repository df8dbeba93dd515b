-- Puts something large beside an entry.
update tidemill_journal set value = ?3 where job = ?1 and number = ?2

-- Puts an entry in the place of another.
update tidemill_journal set entry = ?3 where job = ?1 and number = ?2

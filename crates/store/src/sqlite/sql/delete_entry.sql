-- Forgets an entry that another stands for.
delete from tidemill_journal where job = ?1 and number = ?2

-- What a journal has under a number.
select entry from tidemill_journal where job = ?1 and number = ?2

-- What a run owed was seen to.
delete from tidemill_debt where job = ?1

-- What a run owed was seen to; without a number, whatever it owed.
delete from tidemill_debt where job = ?1 and number = coalesce(?2, number)

-- Debts of runs that ended otherwise than well, after one of them.
select job, number from tidemill_debt where number > ?1 order by number limit ?2

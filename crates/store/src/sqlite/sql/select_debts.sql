-- Runs that ended otherwise than well and owe something, after one of them.
select job from tidemill_debt where job > ?1 order by job limit ?2

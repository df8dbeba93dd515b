-- Runs that ended otherwise than well and owe something.
select job from tidemill_debt order by job limit ?1

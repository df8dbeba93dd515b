-- Deadlines to look at by now, the earliest first.
select at, id from tidemill_deadline where at <= ?1 order by at limit ?2

-- Where a stream ends, how many bytes it has, and what was sent last.
select last, bytes, sent from tidemill_stream where job = ?1 order by first desc limit 1

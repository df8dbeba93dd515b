-- The chunks of a stream after a number, in order: the row that has the next one, and what follows it as far as the
-- bytes go. Rows begin where the one before ends, so a look at the key finds the first.
select s.first, s.at, s.chunks, (select last from tidemill_stream where job = ?1 order by first desc limit 1)
from (
    select first, last, bytes from tidemill_stream where job = ?1 and first <= ?2 + 1 order by first desc limit 1
) b
cross join tidemill_stream s
where s.job = ?1 and s.first >= b.first and s.last > ?2
    and (s.bytes <= b.bytes + ?3 or s.first in (b.first, b.last + 1))
order by s.first limit 1000

-- The chunks of streams after these numbers, in order: of each the row that has the next one, and what follows it as
-- far as the bytes go. Rows begin where the one before ends, so a look at the key finds the first.
select q.place, s.first, s.at, s.chunks, e.last
from unnest($1::uuid[], $2::int8[]) with ordinality q(job, after, place)
cross join lateral (
    select b.first, b.last, b.bytes from tidemill.stream b
    where b.job = q.job and b.first <= q.after + 1 order by b.first desc limit 1
) b
cross join lateral (
    select s.first, s.at, s.chunks from tidemill.stream s
    where s.job = q.job and s.first >= b.first and s.last > q.after
        and (s.bytes <= b.bytes + $3::int8 or s.first in (b.first, b.last + 1))
    order by s.first limit 1000
) s
cross join lateral (select e.last from tidemill.stream e where e.job = q.job order by e.first desc limit 1) e
order by q.place, s.first;

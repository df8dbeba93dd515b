-- Locks sheaves, in order, each by a look of its own, and says what waits in them.
select r.seq, r.ids[r.taken + 1:], r.attempt, r.lost
from (select distinct s from unnest($1::int8[]) s order by s) s, lateral (
    select * from tidemill.ready r where r.seq = s.s for update
) r;

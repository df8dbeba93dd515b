-- How many wait in lines of a queue, up to $2; and of its lines in which some do those that a dead one blocks, with one
-- of these: $3 lines are looked at, and those of the $3 latest deaths.
with recursive waiting as (
    (select w.tenant, w.key, $3::int8 as left_over from tidemill.line_waiting w
    where w.queue = $1::text order by w.tenant, w.key limit 1)
    union all
    select n.tenant, n.key, w.left_over - 1
    from waiting w, lateral (
        select n.tenant, n.key from tidemill.line_waiting n
        where n.queue = $1 and (n.tenant, n.key) > (w.tenant, w.key)
        order by n.tenant, n.key limit 1
    ) n
    where w.left_over > 1
), line as (
    select w.tenant, w.key from waiting w
    union
    select coalesce(j.tenant, ''), j.key
    from (select d.id from tidemill.dead d order by d.died_at desc limit $3) d,
        lateral (select * from tidemill.job j where j.id = d.id limit 1) j
    where j.queue = $1 and j.key is not null
), stuck as (
    select l.key, f.head
    from line l, lateral (
        select f.head from tidemill.line f where f.queue = $1 and f.tenant = l.tenant and f.key = l.key limit 1
    ) f
    where exists (select from tidemill.outcome o where o.id = f.head and o.state = 6 offset 0)
        and exists (select from tidemill.line_waiting w where w.queue = $1 and w.tenant = l.tenant and w.key = l.key)
)
select (select count(*) from (select from tidemill.line_waiting w where w.queue = $1 limit $2::int8) w),
    (select count(*) from stuck), s.key, s.head
from (select) one left join lateral (select * from stuck order by head limit 1) s on true;

-- Lets those through, up to a thousand at each gate, that are held while nobody is inside and no clock opens the gate:
-- whoever should have is gone, or the limit is. Claims look again whether they may pass. Answers their queues.
with recursive held as (
    (select r.gate from tidemill.ready r where r.line = 2 order by r.gate limit 1)
    union all
    (select n.* from held h, lateral (
        select r.gate from tidemill.ready r where r.line = 2 and r.gate > h.gate order by r.gate limit 1
    ) n)
), stuck as materialized (
    select h.gate from held h
    where not exists (select from tidemill.permit p where p.gate = h.gate and p.held > 0)
        and not exists (
            select from tidemill.gate g
            where g.name = h.gate and g.opens_at > coalesce($1::timestamptz, now()) - interval '5 seconds')
    limit 10000
), pick as materialized (
    select r.seq from stuck s, lateral (
        select r.seq from tidemill.ready r where r.line = 2 and r.gate = s.gate
        order by r.run_at, r.seq + 0 limit 1000 for update skip locked
    ) r
), moved as (
    update tidemill.ready r set line = 1, gate = '' where r.seq = any (array(select seq from pick)) returning r.queue
)
select distinct queue from moved;

-- Lets those through, a thousand at most at each gate, that are held although there is room by the limits with a name
-- ($2 and $3), or although there is no such limit, and no clock opens the gate: whoever should have is gone. Claims
-- look again whether they may pass. Answers their queues.
with recursive held as (
    (select r.gate from tidemill.ready r where r.line = 2 order by r.gate limit 1)
    union all
    (select n.* from held h, lateral (
        select r.gate from tidemill.ready r where r.line = 2 and r.gate > h.gate order by r.gate limit 1
    ) n)
), stuck as materialized (
    select h.gate, least(1000, l.most - i.inside - s.stowed) as room
    from held h
    left join unnest($2::text[], $3::int4[]) l(base, most) on l.base = split_part(h.gate, chr(31), 1),
    lateral (
        select coalesce(sum(p.held), 0) as inside from tidemill.permit p where l.most is not null and p.gate = h.gate
    ) i, lateral (
        select count(*) as stowed from tidemill.stowaway s
        where l.most is not null and s.base = l.base and s.gate = h.gate and tidemill.is_aboard(s.token, s.id)
    ) s
    where not exists (
        select from tidemill.gate g
        where g.name = h.gate and g.opens_at > coalesce($1::timestamptz, now()) - interval '5 seconds')
), pick as materialized (
    select r.seq from (select * from stuck s where s.room > 0 limit 10000) s, lateral (
        select r.seq from tidemill.ready r where r.line = 2 and r.gate = s.gate
        order by r.queue, r.priority, r.tenant, r.run_at, r.seq + 0 limit s.room for update skip locked
    ) r
), moved as (
    update tidemill.ready r set line = 1, gate = '' where r.seq = any (array(select seq from pick)) returning r.queue
)
select distinct queue from moved;

-- What came into every queue and went out of it, exact by one snapshot; what had about a minute ago, and what
-- was dropped.
select p.now, n.queue, n.came, n.went, s.at, s.came, s.went, n.dropped
from (select coalesce($1::timestamptz, now()) as now) p, (
    select n.queue, sum(n.came)::int8 as came, sum(n.went)::int8 as went, sum(n.dropped)::int8 as dropped
    from (
        select c.queue, c.came, c.went, c.dropped from tidemill.depth c
        union all
        select d.queue, d.came, d.went, d.dropped from tidemill.depth_delta d
    ) n
    group by n.queue
) n
left join lateral (
    select s.* from tidemill.depth_sample s where s.queue = n.queue
    order by s.at <= p.now - interval '1 minute' desc,
        case when s.at <= p.now - interval '1 minute' then s.at end desc, s.at
    limit 1
) s on true
order by n.queue;

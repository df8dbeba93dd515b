-- What these queues have counted, in their order, exact by one snapshot; and what they had about a minute ago. What did
-- not change for a minute had counted the same.
select p.now, coalesce(c.came, 0) + coalesce(d.came, 0)::int8, coalesce(c.went, 0) + coalesce(d.went, 0)::int8,
    c.above_since, s.at, s.came, s.went
from (select coalesce($1::timestamptz, now()) as now) p, unnest($2::text[]) with ordinality n(queue, number)
left join tidemill.depth c on c.queue = n.queue
left join lateral (
    select sum(d.came) as came, sum(d.went) as went from tidemill.depth_delta d where d.queue = n.queue
) d on true
left join lateral (
    select s.at, s.came, s.went from (
        select s.at, s.came, s.went from tidemill.depth_sample s where s.queue = n.queue
        union all
        select c.changed_at, c.came, c.went where c.changed_at <= p.now - interval '1 minute'
    ) s
    order by s.at <= p.now - interval '1 minute' desc,
        case when s.at <= p.now - interval '1 minute' then s.at end desc, s.at
    limit 1
) s on true
order by n.number;

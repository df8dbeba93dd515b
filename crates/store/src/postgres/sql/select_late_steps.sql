-- Steps of flows that go on which have waited for as long as they may, and how many jobs of their parents have not ended.
-- Under a flow's lock one step of it is asked for: it may have been decided, or given more time, since it was found.
select s.flow, s.number, coalesce((
    select sum(p."left") from tidemill.flow_edge e
    join tidemill.flow_step p on p.flow = e.flow and p.number = e.from_step and p.state < 3
    where e.flow = s.flow and e.to_step = s.number), 0)::int8
from tidemill.flow_step s
where s.late_look_at <= coalesce($1::timestamptz, now())
    and exists (select from tidemill.flow f where f.id = s.flow and f.state = 1)
    and ($3::uuid is null or s.flow = $3::uuid and s.number = $4::int4)
order by s.late_look_at limit $2::int8;

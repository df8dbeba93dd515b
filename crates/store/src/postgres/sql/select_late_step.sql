-- Of a step that has waited for as long as it may, and still does: how many jobs of its parents have not ended. It may
-- have been decided, or given more time, since it was found. The flow's lock is held.
select coalesce((
    select sum(p."left") from tidemill.flow_edge e
    join tidemill.flow_step p on p.flow = e.flow and p.number = e.from_step and p.state < 3
    where e.flow = s.flow and e.to_step = s.number), 0)::int8
from tidemill.flow_step s
where s.flow = $2::uuid and s.number = $3::int4 and s.late_look_at <= coalesce($1::timestamptz, now())
    and exists (select from tidemill.flow f where f.id = s.flow and f.state = 1);

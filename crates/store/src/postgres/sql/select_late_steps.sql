-- A page of steps of flows that go on which have waited for as long as they may.
select s.flow, s.number
from tidemill.flow_step s
where s.late_look_at <= coalesce($1::timestamptz, now())
    and exists (select from tidemill.flow f where f.id = s.flow and f.state = 1)
order by s.late_look_at limit $2::int8;

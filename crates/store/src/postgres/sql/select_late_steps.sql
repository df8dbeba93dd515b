-- A page of steps of flows that go on which have waited for as long as they may, behind one.
select s.flow, s.number, s.late_look_at
from tidemill.flow_step s
where s.late_look_at <= coalesce($1::timestamptz, now())
    and exists (select from tidemill.flow f where f.id = s.flow and f.state = 1)
    and ($3::timestamptz is null
        or (s.late_look_at, s.flow, s.number) > ($3::timestamptz, $4::uuid, $5::int4))
order by s.late_look_at, s.flow, s.number limit $2::int8;

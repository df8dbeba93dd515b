-- Lets steps wait for as long as they may from now on. Without a number, all of the flow.
update tidemill.flow_step s
set late_at = coalesce($1::timestamptz, now()) + (s.joined ->> 'within_ms')::int8 * interval '1 ms'
from unnest($2::uuid[], $3::int4[]) i(flow, number)
where s.flow = i.flow and s.number = coalesce(i.number, s.number) and s.late_at is not null;

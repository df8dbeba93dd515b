-- Lets steps wait for as long as they may from now on. Without a number, all of the flow. Steps are found by a look each:
-- ten thousand of one flow would walk over all of it ten thousand times.
update tidemill.flow_step s
set late_at = l.late_at, late_look_at = case when s.late_look_at is not null then l.late_at end
from unnest($2::uuid[], $3::int4[]) i(flow, number), lateral (
    select n.number, n.joined from tidemill.flow_step n
    where n.flow = i.flow and n.number = i.number and n.late_at is not null
    union all
    select n.number, n.joined from tidemill.flow_step n
    where i.number is null and n.flow = i.flow and n.late_at is not null
) n, lateral (
    select coalesce($1::timestamptz, now()) + (n.joined ->> 'within_ms')::int8 * interval '1 ms' as late_at
) l
where s.flow = i.flow and s.number = n.number;

-- Writes how far steps are; their flows' locks are held.
update tidemill.flow_step s
set state = i.state, "left" = i."left", ok = i.ok, failed = i.failed, parents_left = i.parents_left, came = i.came,
    met = i.met, missed = i.missed, reason = i.reason, alarms = i.alarms, lost = i.lost, refused = i.refused,
    call_off = s.call_off and i.state < 3,
    late_look_at = case when i.state = 0 then s.late_at end,
    started_at = case when i.state = 0 then null when i.state < 5 then coalesce(s.started_at, $1::timestamptz, now())
        else s.started_at end,
    ended_at = case when i.state > 2 then coalesce(s.ended_at, $1::timestamptz, now()) end
from unnest($2::uuid[], $3::int4[], $4::int2[], $5::int8[], $6::int8[], $7::int8[], $8::int4[], $9::int4[], $10::int8[],
    $11::int8[], $12::text[], $13::int4[], $14::int2[], $15::boolean[])
    i(flow, number, state, "left", ok, failed, parents_left, came, met, missed, reason, alarms, lost,
        refused)
where s.flow = i.flow and s.number = i.number;

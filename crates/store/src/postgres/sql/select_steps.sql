-- Steps, as a board needs them. Without a number, all of the flow.
select s.flow, s.number, s.name, s.state, s.jobs, s."left", s.ok, s.failed, s.joined::text, s.parents_left, s.came,
    s.met, s.missed, s.reason, s.undo::text, s.undoes, s.pivot, s.grown, s.superseded, s.slow, s.alarms, s.lost, s.refused,
    s.early, s.guarded
from unnest($1::uuid[], $2::int4[]) i(flow, number), lateral (
    select * from tidemill.flow_step s where s.flow = i.flow and s.number = coalesce(i.number, s.number)
) s;

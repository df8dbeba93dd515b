-- The edges that leave these steps, with the steps they lead to. If $3, those that leave these too, and so on.
with recursive reached as (
    select i.flow, i.step from unnest($1::uuid[], $2::int4[]) i(flow, step)
    union
    select e.flow, e.to_step from reached r, lateral (
        select * from tidemill.flow_edge e where e.flow = r.flow and e.from_step = r.step
    ) e where $3::boolean
)
select s.flow, s.number, s.name, s.state, s.jobs, s."left", s.ok, s.failed, s.joined::text, s.parents_left, s.came,
    s.met, s.missed, s.reason, s.undo::text, s.undoes, s.pivot, s.grown, s.superseded, s.slow, s.alarms, s.lost, s.refused,
    s.early, s.guarded,
    e.from_step, e.on_end, e.when_holds, e.held
from reached r, lateral (
    select * from tidemill.flow_edge e where e.flow = r.flow and e.from_step = r.step
) e, lateral (
    select * from tidemill.flow_step s where s.flow = e.flow and s.number = e.to_step limit 1
) s;

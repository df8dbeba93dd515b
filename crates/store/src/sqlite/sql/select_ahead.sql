-- A step, and those that come after it with the edges that lead to them.
select
    number, name, state, jobs, left, ok, failed, joined, parents_left, came, met, missed, reason, undo, undoes, pivot,
    grown, superseded, slow, alarms, lost, refused, early, guarded, null as from_step, null as on_end,
    null as when_holds, null as held
from tidemill_flow_step
where flow = ?1 and number = ?2
union all
select
    step.number, step.name, step.state, step.jobs, step.left, step.ok, step.failed, step.joined, step.parents_left,
    step.came, step.met, step.missed, step.reason, step.undo, step.undoes, step.pivot, step.grown, step.superseded,
    step.slow, step.alarms, step.lost, step.refused, step.early, step.guarded, edge.from_step, edge.on_end, edge.when_holds, edge.held
from tidemill_flow_edge as edge
join tidemill_flow_step as step on step.flow = edge.flow and step.number = edge.to_step
where edge.flow = ?1 and edge.from_step = ?2

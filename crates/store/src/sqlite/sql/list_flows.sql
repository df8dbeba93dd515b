-- A page of flows, newest first.
select
    flow.id, flow.name, flow.state, flow.created_at, flow.finished_at, flow.reason,
    (
        select count(*) from tidemill_flow_step
        where tidemill_flow_step.flow = flow.id and not superseded and tidemill_flow_step.state < 3
    ),
    (select count(*) from tidemill_flow_step where tidemill_flow_step.flow = flow.id and not superseded),
    (select coalesce(sum(jobs), 0) from tidemill_flow_step where tidemill_flow_step.flow = flow.id and not superseded),
    (select coalesce(sum(ok), 0) from tidemill_flow_step where tidemill_flow_step.flow = flow.id and not superseded),
    (select coalesce(sum(failed), 0) from tidemill_flow_step where tidemill_flow_step.flow = flow.id and not superseded),
    flow.at_once, flow.state_at
from tidemill_flow as flow
where (?1 is null or state = ?1) and (?2 is null or name = ?2) and (?3 is null or id < ?3)
order by id desc
limit ?4

-- The steps of a flow, with the first job of each.
select
    step.number, step.name, job.kind, job.id, step.state, step.jobs, step.ok, step.failed, step.joined,
    step.started_at, step.ended_at, step.reason, step.undo, step.undoes, step.pivot, step.superseded
from tidemill_flow_step as step
left join tidemill_job as job on job.id = (
    select id from tidemill_job where tidemill_job.flow = step.flow and tidemill_job.step = step.number order by id limit 1
)
where step.flow = ?1
order by step.number

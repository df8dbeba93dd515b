-- Whether a job is a step, and no undo, of a saga that has turned back: it must not be done after that.
select exists (
    select 1 from tidemill_job as job
    join tidemill_flow as flow on flow.id = job.flow and flow.saga
    join tidemill_flow_step as step on step.flow = job.flow and step.number = job.step and step.undoes is null
    where job.id = ?1 and (flow.state in (6, 7) or flow.state = 8 and exists (
        select 1 from tidemill_flow_step as undo where undo.flow = flow.id and undo.undoes is not null
    ))
)

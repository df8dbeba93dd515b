-- Whether the time of a flow is over: nothing of it goes on from then on. A job of a step that was run again may have
-- been sent on its way by itself: it keeps what it needs of the others.
select 1 from tidemill_flow as flow where id = ?2 and forget_at <= ?1
    and not exists (
        select 1 from tidemill_flow_step as step
        join tidemill_job as job on job.flow = step.flow and job.step = step.number
        where step.flow = flow.id and step.superseded
            and not exists (select 1 from tidemill_outcome where id = job.id))

-- Where a step of a flow stands of which ?3 jobs are done, if it is plain, and each step that waits for it: whether that
-- is plain, what it waits for, whether it may be opened at once, and its job if that is the only one and it is opened
-- now. Nothing, if the flow or the step is not plain.
select step.left, edge.to_step, edge.on_end <> 1 and edge.when_holds is null and not next.early, next.parents_left,
    next.jobs between 1 and ?4 and next.left = next.jobs and not next.slow,
    job.id, job.queue, job.priority, job.tenant, job.kind, job.key
from tidemill_flow as flow
join tidemill_flow_step as step on step.flow = flow.id and step.number = ?2
left join tidemill_flow_edge as edge on edge.flow = flow.id and edge.from_step = ?2
left join tidemill_flow_step as next on next.flow = flow.id and next.number = edge.to_step and next.state = 0
left join tidemill_job as job
    on job.flow = flow.id and job.step = next.number and next.jobs = 1 and next.parents_left = 1 and step.left = ?3
where flow.id = ?1 and flow.state = 1 and not flow.saga and flow.at_once is null
    and step.state between 1 and 2 and step.failed = 0 and step.left >= ?3

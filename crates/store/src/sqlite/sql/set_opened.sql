-- Jobs of a step are let go up to this one; answers whether that was the last.
update tidemill_flow_step set opened = ?3 where flow = ?1 and number = ?2
returning not exists (
    select 1 from tidemill_job as job
    where job.flow = tidemill_flow_step.flow and job.step = tidemill_flow_step.number and job.id > ?3
)

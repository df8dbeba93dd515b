-- Whether a job is of a flow whose time is over: what ended of that may be gone already.
select exists (
    select 1 from tidemill_job as job join tidemill_flow as flow on flow.id = job.flow and flow.forget_at <= ?2
    where job.id = ?1
)

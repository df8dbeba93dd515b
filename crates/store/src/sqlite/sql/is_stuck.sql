-- Whether a job is of a saga that is stuck: who sends it again says why.
select exists (
    select 1 from tidemill_job as job join tidemill_flow as flow on flow.id = job.flow and flow.state = 8
    where job.id = ?1
)

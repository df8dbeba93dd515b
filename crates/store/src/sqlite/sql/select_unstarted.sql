-- Whether a job that was dead stands by itself (in no flow, with no journal) and has not started since its death.
select 1 from tidemill_job as job
where job.id = ?1 and job.flow is null
    and not exists (select 1 from tidemill_run as run where run.job = job.id)
    and not exists (
        select 1 from tidemill_attempt as attempt join tidemill_dead as dead on dead.id = attempt.id
        where attempt.id = job.id and attempt.ended_at > dead.died_at
    )

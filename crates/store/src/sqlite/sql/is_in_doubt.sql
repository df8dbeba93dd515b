-- Whether a step of a saga that failed may have taken effect: a job of it is done, or somebody must doubt that it had
-- none. An attempt without a class did not fail: it was put off, or given back.
select exists (
    select 1 from tidemill_job as job
    join tidemill_outcome as outcome on outcome.id = job.id and outcome.step is not null
    where job.flow = ?1 and job.step = ?2 and (
        outcome.state = 4 or outcome.state = 5 and outcome.token is not null
        or exists (
            select 1 from tidemill_attempt as attempt
            where attempt.id = outcome.id and coalesce(attempt.class in ('ambiguous', 'in_doubt', 'lost'), 1)
        )
        or exists (
            select 1 from tidemill_dead as dead
            where dead.id = outcome.id and dead.class in ('ambiguous', 'in_doubt', 'poison')
        )
    )
)

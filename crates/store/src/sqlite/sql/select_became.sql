-- What became of the steps of a saga that have an undo: how the job ended, what it returned, and whether somebody
-- must doubt that it had no effect. An attempt without a class did not fail: it was put off, or given back.
select
    step.number, outcome.state, outcome.output,
    outcome.state = 5 and outcome.token is not null
        or exists (
            select 1 from tidemill_attempt as attempt
            where attempt.id = outcome.id and coalesce(attempt.class in ('ambiguous', 'in_doubt', 'lost'), 1)
        )
        or exists (
            select 1 from tidemill_dead as dead
            where dead.id = outcome.id and dead.class in ('ambiguous', 'in_doubt', 'poison')
        )
from tidemill_flow_step as step
join tidemill_job as job on job.flow = step.flow and job.step = step.number
join tidemill_outcome as outcome on outcome.id = job.id and outcome.step is not null
where step.flow = ?1 and step.undo is not null

-- A finished job, whether its key is still held and so keeps its result, and how it ended. Not a
-- run that owes something: its journal is needed for that.
select
    outcome.keyed,
    outcome.keyed > 0 and exists (
        select 1
        from tidemill_job as job
        join tidemill_unique_key as held on held.key = job.unique_key and held.id = job.id
        where job.id = outcome.id and (held.until is null or held.until > ?2)
    ),
    outcome.state
from tidemill_outcome as outcome
where outcome.id = ?1 and not exists (select 1 from tidemill_debt as debt where debt.job = outcome.id)

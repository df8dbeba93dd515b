-- How many dead letters each queue has that nobody put aside and that have not recovered, and when the first died.
select dead.queue, count(*), min(dead.died_at)
from tidemill_dead as dead
where not dead.archived
    and not exists (
        select 1 from tidemill_outcome as outcome where outcome.id = dead.id and outcome.state = 4
    )
group by dead.queue

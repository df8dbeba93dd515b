-- How many dead letters each queue has that nobody put aside and that have not recovered.
select dead.queue, count(*)
from tidemill_dead as dead
where not dead.archived
    and not exists (
        select 1 from tidemill_outcome as outcome where outcome.id = dead.id and outcome.state = 4
    )
group by dead.queue

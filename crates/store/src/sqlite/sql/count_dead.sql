-- Each dead letter's queue, when it died, and whether nobody put it aside and it has not recovered. Counted by who asks:
-- no index has the order of the queues, and grouping would sort all letters in memory.
select dead.queue, dead.died_at,
    not dead.archived and not exists (
        select 1 from tidemill_outcome as outcome where outcome.id = dead.id and outcome.state = 4
    ) as stands
from tidemill_dead as dead

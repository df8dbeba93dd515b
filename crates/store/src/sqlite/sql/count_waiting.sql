-- What waits in each queue and band, since when, and of which kinds. The key's order is the groups' order: grouping by
-- anything else would sort all that waits in memory.
select queue, priority % 10,
    count(*) filter (where run_at <= ?1) as ready,
    count(*) filter (where run_at > ?1) as scheduled,
    min(run_at) filter (where run_at <= ?1) as oldest_due_at,
    json_group_array(distinct kind) as kinds
from tidemill_ready
group by queue, priority

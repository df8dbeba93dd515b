-- When the next job that waits for the clock is due, of each band of a queue that has one.
with band (number) as (values (0), (1), (2), (3)), next as (
    select number, (
        select run_at from tidemill_ready
        where queue = ?1 and priority = number and tenant = '' and run_at > ?2
        order by run_at
        limit 1
    ) as open, (
        select run_at from tidemill_ready
        where queue = ?1 and priority = number and tenant <> '' and run_at > ?2
        order by run_at
        limit 1
    ) as crowded, (
        select run_at from tidemill_ready
        where queue = ?1 and priority = number + 20 and tenant <> ''
        order by run_at
        limit 1
    ) as aside
    from band
)
select number, min(coalesce(open, crowded, aside), coalesce(crowded, aside, open), coalesce(aside, open, crowded))
from next
where coalesce(open, crowded, aside) is not null

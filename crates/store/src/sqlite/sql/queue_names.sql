-- The queues that have jobs waiting, found by one look each.
with recursive name (queue) as (
    select min(queue) from tidemill_ready
    union all
    select (select min(queue) from tidemill_ready where queue > name.queue)
    from name
    where name.queue is not null
)
select queue from name where queue is not null

-- The queues that have jobs waiting, found by one look each.
with recursive name as (
    (select queue from tidemill.ready order by queue limit 1)
    union all
    (select n.queue from name, lateral (
        select r.queue from tidemill.ready r where r.queue > name.queue order by r.queue limit 1
    ) n)
)
select queue from name;

-- How many dead letters each queue has that are not archived and have not recovered, and when the first of them died.
select d.queue, count(*) filter (where d.stands), min(d.died_at) filter (where d.stands)
from (
    select d.queue, d.died_at, not d.archived and not exists (
        select from tidemill.outcome o where o.id = d.id and o.state = 4) as stands
    from tidemill.dead d
) d
group by d.queue;

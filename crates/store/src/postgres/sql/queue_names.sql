-- The queues that have jobs waiting, by what is counted of them: no job is looked at, however many are held at gates.
select n.queue
from (
    select c.queue, c.came - c.went as jobs from tidemill.depth c
    union all
    select d.queue, d.came - d.went from tidemill.depth_delta d
) n
group by n.queue having sum(n.jobs) > 0 order by n.queue;

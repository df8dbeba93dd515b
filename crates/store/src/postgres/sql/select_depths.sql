-- The depth of every queue that has one, and since when it is above its high watermark.
select n.queue, sum(n.jobs)::int8, min(n.above_since)
from (
    select c.queue, c.came - c.went as jobs, c.above_since from tidemill.depth c
    union all
    select d.queue, d.came - d.went, null from tidemill.depth_delta d
) n
group by n.queue having sum(n.jobs) > 0 or min(n.above_since) is not null;

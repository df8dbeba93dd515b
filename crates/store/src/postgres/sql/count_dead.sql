-- How many dead letters each queue has that are not archived and have not recovered.
select d.queue, count(*) filter (where not d.archived and not exists (
    select from tidemill.outcome o where o.id = d.id and o.state = 4))
from tidemill.dead d group by d.queue;

-- The place of a job that waits in a line: how many are before it (up to 100,000), who is first, whether that is dead.
select w.key, 1 + (
        select count(*) from (
            select from tidemill.line_waiting b
            where b.queue = w.queue and b.tenant = w.tenant and b.key = w.key and b.number < w.number
            limit 99999
        ) b),
    l.head, exists (select from tidemill.outcome o where o.id = l.head and o.state = 6 offset 0)
from tidemill.line_waiting w, lateral (
    select l.head from tidemill.line l where l.queue = w.queue and l.tenant = w.tenant and l.key = w.key limit 1
) l
where w.id = $1::uuid;

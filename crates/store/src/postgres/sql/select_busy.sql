-- How many jobs each worker holds, by queue. Its cost grows with what runs; $1 leases are looked at.
select l.worker, j.queue, count(*)
from (select * from tidemill.lease limit $1::int8) l, unnest(l.ids) i(id),
    lateral (select j.queue from tidemill.job j where j.id = i.id limit 1) j
where i.id <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i.id offset 0)
group by l.worker, j.queue;

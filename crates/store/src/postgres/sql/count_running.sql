-- How many jobs run, by queue.
select j.queue, count(*)
from tidemill.lease l, unnest(l.ids) i(id), lateral (select j.queue from tidemill.job j where j.id = i.id limit 1) j
where i.id <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i.id)
group by j.queue;

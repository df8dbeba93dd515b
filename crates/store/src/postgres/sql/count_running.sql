-- How many jobs run, by queue, and since when the one that was claimed first.
select j.queue, count(*), min(l.claimed_at)
from tidemill.lease l, unnest(l.ids) i(id), lateral (select j.queue from tidemill.job j where j.id = i.id limit 1) j
where i.id <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i.id offset 0)
group by j.queue;

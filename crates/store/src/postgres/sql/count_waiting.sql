-- What waits in each queue and band, since when, and of which kinds.
select s.queue, s.priority,
    coalesce(sum(cardinality(s.ids) - s.taken) filter (where s.run_at <= p.now), 0)::int8 as ready,
    coalesce(sum(cardinality(s.ids) - s.taken) filter (where s.run_at > p.now), 0)::int8 as scheduled,
    min(s.run_at) filter (where s.run_at <= p.now) as oldest_due_at,
    array_agg(distinct s.kind) as kinds
from tidemill.ready s, (select coalesce($1::timestamptz, now()) as now) p
group by s.queue, s.priority;

-- What callers decided for these jobs, with their bodies and the attempts that are still under their leases.
select b.id, b.kind, b.queue, b.priority, b.tenant, b.key, b.unique_key, b.payload::text, b.options::text, b.created_at,
    d.token, d.output, d.follow_ups, l.worker, a.attempt, a.lost
from tidemill.decided d
join tidemill.lease l on l.token = d.token
cross join lateral unnest(l.ids, l.attempts, l.losts) a(id, attempt, lost)
cross join lateral (select b.* from tidemill.job b where b.id = d.id limit 1) b
where d.id = any ($1::uuid[]) and a.id = d.id;

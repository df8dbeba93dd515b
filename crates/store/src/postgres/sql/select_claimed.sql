-- Jobs with what leases say of them, in the order asked, but for leases of other workers; no attempt where the lease does
-- not hold the job.
select j.id, j.kind, j.queue, j.priority, j.tenant, j.key, j.unique_key, j.payload::text, j.options::text, j.created_at,
    case when a.id <> all (l.gone) then l.attempts[p.place] end, l.losts[p.place], l.gates, a.number
from unnest($1::int8[], $2::uuid[]) with ordinality a(token, id, number)
cross join lateral (select * from tidemill.job j where j.id = a.id limit 1) j
left join tidemill.lease l on l.token = a.token
left join lateral (select array_position(l.ids, a.id) as place) p on true
where l.worker is null or l.worker = $3::uuid
order by a.number;

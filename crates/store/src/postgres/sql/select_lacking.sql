-- One job that waits, runs or is blocked, of the queues from $1 to $2 and of kind $3 or any, without a tenant ($4) or
-- key (not $4). Reads at most $5 rows of what waits (sheaves of up to 100 jobs of one key), of what runs, and of each way
-- to be blocked; none of what has finished. A million that wait and have a key cost what 100,000 cost: some 50 ms.
(select s.ids[s.taken + 1], s.kind, s.queue::text
from (
    select r.ids, r.taken, r.kind, r.queue, r.tenant, r.key from tidemill.ready r
    where r.queue >= $1::text and r.queue <= $2::text limit $5::int8
) s
where ($3::text is null or s.kind = $3) and case when $4::boolean then s.tenant else s.key end = ''
limit 1)
union all
(select j.id, j.kind, j.queue
from (
    (select i.id from tidemill.lease l, unnest(l.ids) i(id) where i.id <> all (l.gone) limit $5)
    union all (select u.next_id from tidemill.unique_key u where u.next_id is not null limit $5)
    union all (select w.id from tidemill.line_waiting w where w.queue >= $1 and w.queue <= $2 limit $5)
    union all (select j.id from tidemill.flow f
        join tidemill.flow_step s on s.flow = f.id and s.state < 2
        join tidemill.job j on j.flow = s.flow and j.step = s.number
            and case when s.slow then j.sheaf = 0 else j.place > s.opened end
        where f.finished_at is null limit $5)
    union all (select r.job from tidemill.run r
        where r.waits is not null and r.waits ->> 'until' is null or r.parked is not null or r.paused limit $5)
) b, lateral (select * from tidemill.job j where j.id = b.id limit 1) j
where j.queue collate "C" >= $1 and j.queue collate "C" <= $2 and ($3 is null or j.kind = $3)
    and case when $4 then j.tenant else j.key end is null
    and not exists (select from tidemill.outcome o where o.id = j.id offset 0)
limit 1)
limit 1;

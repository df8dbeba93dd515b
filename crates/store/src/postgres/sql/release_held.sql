-- Lets the next $8 sheaves through that gates before $7 hold, behind this place in their order; in the order of their
-- numbers, as all who lock several do. Answers the last place, whether there may be more, and the queues.
with pick as materialized (
    select r.seq, r.gate, r.queue, r.priority, r.tenant, r.run_at from tidemill.ready r
    where r.line = 2 and r.gate < $7::text
        and (r.gate, r.queue, r.priority, r.tenant, r.run_at, r.seq + 0)
            > ($1::text, $2::text, $3::int2, $4::text, coalesce($5::timestamptz, '-infinity'), $6::int8)
    order by r.gate, r.queue, r.priority, r.tenant, r.run_at, r.seq + 0 limit $8::int8
), held as materialized (
    select r.seq from tidemill.ready r where r.seq = any (array(select p.seq from pick p)) and r.line = 2
    order by r.seq for update
), moved as (
    update tidemill.ready r set line = 1, gate = '' where r.seq = any (array(select h.seq from held h))
)
select p.gate, p.queue, p.priority, p.tenant, p.run_at, p.seq, (select count(*) from pick) = $8,
    array(select distinct q.queue from pick q)
from pick p
order by p.gate desc, p.queue desc, p.priority desc, p.tenant desc, p.run_at desc, p.seq desc limit 1;

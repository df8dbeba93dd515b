-- Where the jobs of a batch go that is written in parts, so many of each of these queues, and behind which number their
-- sheaves come; nothing where none of them may have a bound. $3: queues that are full may divert them.
with present as materialized (
    select nextval('tidemill.sheaf') as first where tidemill.is_bounded($1::text[])
)
select n.queue, case when $3::boolean then tidemill.route(n.queue, n.jobs) else n.queue end, p.first
from present p, unnest($1, $2::int8[]) n(queue, jobs);

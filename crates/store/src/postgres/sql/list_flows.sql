-- A page of flows, newest first.
select f.id, f.name, f.state, f.created_at, f.finished_at, f.reason, s.steps, s.steps_left, s.jobs, s.ok, s.failed, f.at_once,
    f.state_at
from (
    select * from tidemill.flow f
    where ($1::int2 is null or f.state = $1) and ($2::text is null or f.name = $2) and ($3::uuid is null or f.id < $3)
    order by f.id desc limit $4::int8
) f, lateral (
    select count(*) as steps, count(*) filter (where s.state < 3) as steps_left, coalesce(sum(s.jobs), 0)::int8 as jobs,
        coalesce(sum(s.ok), 0)::int8 as ok, coalesce(sum(s.failed), 0)::int8 as failed
    from tidemill.flow_step s where s.flow = f.id and not s.superseded
) s
order by f.id desc;

-- What the steps before these are, and what the only job of each returned, if that is small.
select i.place, s.name, s.number, s.state, s.jobs, s.ok, s.failed, o.output
from unnest($1::uuid[], $2::int4[]) with ordinality i(flow, step, place), lateral (
    select * from tidemill.flow_edge e where e.flow = i.flow and e.to_step = i.step
) e, lateral (
    select * from tidemill.flow_step s where s.flow = e.flow and s.number = e.from_step limit 1
) s left join lateral (
    select case when octet_length(o.output::text) <= $3::int8 then o.output::text end as output
    from (
        select j.id from tidemill.job j where j.flow = s.flow and j.step = s.number and s.jobs = 1 limit 1
    ) j, lateral (
        select o.output from tidemill.outcome o where o.id = j.id and o.state = 4 limit 1
    ) o
) o on true
order by i.place, s.number;

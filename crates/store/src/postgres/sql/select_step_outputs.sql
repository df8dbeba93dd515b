-- What the only jobs of these steps returned.
select i.flow, i.step, o.output::text
from unnest($1::uuid[], $2::int4[]) i(flow, step), lateral (
    select from tidemill.flow_step s where s.flow = i.flow and s.number = i.step and s.jobs = 1 limit 1
) s, lateral (
    select j.id from tidemill.job j where j.flow = i.flow and j.step = i.step limit 1
) j, lateral (
    select o.output from tidemill.outcome o where o.id = j.id and o.state = 4 limit 1
) o
where o.output is not null;

-- Locks, in order, the flows of those of these jobs whose step is not wholly opened: it will not be meanwhile.
select from (
    select distinct j.flow from unnest($1::uuid[]) i(id), lateral (
        select j.flow, j.step from tidemill.job j where j.id = i.id and j.flow is not null limit 1
    ) j, lateral (
        select from tidemill.flow_step s where s.flow = j.flow and s.number = j.step and s.state < 2 limit 1
    ) s
    order by j.flow
) i, lateral (select from tidemill.flow f where f.id = i.flow for update) f;

-- Those of these jobs that their step of a flow has not let go; the flow's lock is held.
select j.id from unnest($1::uuid[]) i(id), lateral (
    select j.id, j.flow, j.step, j.sheaf, j.place from tidemill.job j where j.id = i.id and j.flow is not null limit 1
) j, lateral (
    select from tidemill.flow_step s
    where s.flow = j.flow and s.number = j.step and s.state < 2
        and case when s.slow then j.sheaf = 0 else j.place > s.opened end limit 1
) s
where not exists (select from tidemill.outcome o where o.id = j.id offset 0);

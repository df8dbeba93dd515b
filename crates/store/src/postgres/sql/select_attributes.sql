-- What limits look at in the jobs that run.
select l.token, i.id, j.queue, j.kind, coalesce(j.tenant, ''), coalesce(j.key, '')
from tidemill.lease l, unnest(l.ids) i(id), lateral (
    select j.queue, j.kind, j.tenant, j.key from tidemill.job j where j.id = i.id limit 1
) j
where i.id <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i.id offset 0);

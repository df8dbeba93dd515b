-- What a worker holds, oldest first.
select l.token, l.claimed_at, array(
    select i.id from unnest(l.ids) i(id)
    where i.id <> all (l.gone) and not exists (select from tidemill.outcome o where o.id = i.id offset 0))
from tidemill.lease l where l.worker = $1::uuid order by l.token;

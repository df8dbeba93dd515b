-- Decides that a job is done, if this token still holds it; a rescue of the lease waits for the end of this transaction.
insert into tidemill.decided as d (id, token, output, follow_ups)
select $1::text::uuid, l.token, $3, $4
from (
    select l.token from tidemill.lease l
    where l.token = $2::text::int8 and $1::text::uuid = any (l.ids) and $1::text::uuid <> all (l.gone)
    for key share
) l
where not exists (select from tidemill.outcome o where o.id = $1::text::uuid)
on conflict (id) do update set token = excluded.token, output = excluded.output, follow_ups = excluded.follow_ups
returning d.id::text

-- Records what a step came to, if this token still holds its run; a rescue of the lease waits for the end of this
-- transaction, and so does whoever seals the number.
insert into tidemill.journal (job, number, at, entry)
select $1::text::uuid, $3::text::int4, now(), $4::text::json
from (
    select from tidemill.lease l
    where l.token = $2::text::int8 and $1::text::uuid = any (l.ids) and $1::text::uuid <> all (l.gone)
    for key share
) l
where not exists (select from tidemill.outcome o where o.id = $1::text::uuid)
on conflict (job, number) do nothing
returning 'recorded'

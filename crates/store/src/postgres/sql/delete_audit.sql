-- Forgets acts that are older than they are kept, or that too many are newer than: of those that were refused, so many
-- refused ones; of the others, so many others. So many at a time, oldest first.
with gone as (
    delete from tidemill.audit
    where id = any (array(
        select a.id from tidemill.audit a
        where a.at < coalesce($1::timestamptz, now()) - $2::int8 * interval '1 us'
            or (not a.is_refused and a.id <= (
                select n.id from tidemill.audit n where not n.is_refused order by n.id desc limit 1 offset $3::int8))
            or (a.is_refused and a.id <= (
                select n.id from tidemill.audit n where n.is_refused order by n.id desc limit 1 offset $4::int8))
        order by a.id limit $5::int8))
    returning 1
)
select count(*) from gone;

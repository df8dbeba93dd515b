-- Forgets acts that are older than they are kept, or that too many are newer than. So many at a time, oldest first.
with gone as (
    delete from tidemill.audit
    where id = any (array(
        select a.id from tidemill.audit a
        where a.at < coalesce($1::timestamptz, now()) - $2::int8 * interval '1 us'
            or a.id <= (select n.id from tidemill.audit n order by n.id desc limit 1 offset $3::int8)
        order by a.id limit $4::int8))
    returning 1
)
select count(*) from gone;

-- Forgets acts that are older than they are kept, or that too many are newer than: of those that were refused, so many
-- refused ones; of the others, so many others. So many at a time, oldest first.
delete from tidemill_audit
where id in (
    select id from tidemill_audit
    where at < ?1
        or (not is_refused and id <= (
            select id from tidemill_audit where not is_refused order by id desc limit 1 offset ?2))
        or (is_refused and id <= (
            select id from tidemill_audit where is_refused order by id desc limit 1 offset ?3))
    order by id
    limit ?4
)

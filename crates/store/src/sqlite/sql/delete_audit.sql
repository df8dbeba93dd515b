-- Forgets acts that are older than they are kept, or that too many are newer than. So many at a time, oldest first.
delete from tidemill_audit
where id in (
    select id from tidemill_audit
    where at < ?1 or id <= (select id from tidemill_audit order by id desc limit 1 offset ?2)
    order by id
    limit ?3
)

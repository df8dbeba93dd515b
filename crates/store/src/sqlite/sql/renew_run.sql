-- A run that continues anew goes by another version, and owes nothing. Mail that is left is unread.
update tidemill_run set version = ?2, owes = 0, unread = m.signals, unread_bytes = m.bytes
from (
    select count(*) as signals, coalesce(sum(bytes), 0) as bytes
    from tidemill_mail where job = ?1 and bytes is not null
) m
where job = ?1

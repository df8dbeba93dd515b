-- A signal was taken: there is room for another.
update tidemill_run set unread = unread - 1, unread_bytes = unread_bytes - m.bytes
from tidemill_mail m where tidemill_run.job = ?1 and m.job = ?1 and m.number = ?2 and m.bytes is not null

-- Signals that a run, which is locked, had taken are unread again: their entries were forgotten.
update tidemill.run r set unread = r.unread + m.signals, unread_bytes = r.unread_bytes + m.bytes
from (
    select count(*) as signals, coalesce(sum(m.bytes), 0)::int8 as bytes
    from tidemill.mail m where m.job = $1::uuid and m.number = any ($2::int8[]) and m.bytes is not null
) m
where r.job = $1;

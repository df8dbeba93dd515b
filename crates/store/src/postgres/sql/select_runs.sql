-- What is kept of these runs beside their journals, newest first.
select r.job, r.began_at, r.version, r.waits::text, r.state::text, r.parked::text, r.paused, r.undone,
    r.journal_entries_max, r.unread
from tidemill.run r where r.job = any ($1::uuid[]) order by r.job desc;

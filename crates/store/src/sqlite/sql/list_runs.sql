-- A page of runs, newest first, made before ?1.
select r.job, r.began_at, r.version, r.waits, r.state, r.parked, r.paused, r.mail, r.wake_at, r.undone,
    r.journal_entries_max, r.unread
from tidemill_run r join tidemill_job j on j.id = r.job
where r.job < ?1 and (?3 is null or j.kind = ?3)
    and (not ?4 or not exists (select 1 from tidemill_outcome o where o.id = r.job))
order by r.job desc limit ?2

-- What is kept of a run beside its journal.
select job, began_at, version, waits, state, parked, paused, mail, wake_at, undone, journal_entries_max, unread,
    unread_bytes
from tidemill_run where job = ?1

-- Adds an entry to a journal; one that is sent again is there.
insert into tidemill_journal (job, number, at, entry) values (?1, ?2, ?3, ?4) on conflict do nothing

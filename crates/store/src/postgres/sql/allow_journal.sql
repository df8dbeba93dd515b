-- Lets the journal of a run, which is locked, have so many entries.
update tidemill.run r set journal_entries_max = $2::int4 where r.job = $1::uuid;

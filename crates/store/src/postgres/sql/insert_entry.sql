-- Adds an entry to the journal of a run, which is locked and does not run.
insert into tidemill.journal (job, number, at, entry)
values ($2::uuid, $3::int4, coalesce($1::timestamptz, now()), $4::text::json);

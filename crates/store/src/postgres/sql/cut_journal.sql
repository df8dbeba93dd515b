-- Forgets the journal of a run, which is locked and does not run, from an entry on, and some before.
delete from tidemill.journal j where j.job = $1::uuid and (j.number >= $2::int4 or j.number = any ($3::int4[]));

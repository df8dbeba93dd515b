-- Locks unique keys, in order: first of all locks, wherever keys are freed.
select key from tidemill.unique_key where key = any ($1::text[]) order by key for update;

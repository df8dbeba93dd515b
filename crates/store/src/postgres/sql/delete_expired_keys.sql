-- Forgets keys whose period is over, at most 1,000; not those that keep a job for afterwards.
delete from tidemill.unique_key where key = any (array(
    select key from tidemill.unique_key
    where scope = 1 and until <= coalesce($1::timestamptz, now()) and next_id is null
    limit 1000 for update skip locked));

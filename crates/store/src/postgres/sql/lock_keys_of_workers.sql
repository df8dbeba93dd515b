-- Locks the unique keys of what these workers hold, in order: first of all locks, wherever keys are freed.
select key from tidemill.unique_key where key = any (array(
    select j.unique_key from tidemill.job j
    where j.unique_key is not null
        and j.id = any (array(select unnest(l.ids) from tidemill.lease l where l.worker = any ($1::uuid[])))))
order by key for update;

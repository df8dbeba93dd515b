-- Who holds the unique key that a job is kept for, or had when it finished.
select u.id from tidemill.job j join tidemill.unique_key u on u.key = j.unique_key and u.id <> j.id
where j.id = $1::uuid
    and (u.next_id = j.id or exists (select from tidemill.outcome o where o.id = j.id offset 0));

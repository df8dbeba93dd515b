-- Which of these jobs are there and have not finished. Each is found by its keys.
select q.id from unnest($1::uuid[]) q(id)
cross join lateral (select from tidemill.job j where j.id = q.id limit 1) j
where not exists (select from tidemill.outcome o where o.id = q.id offset 0);

-- A page of finished jobs after $1, oldest first.
select id, queue, state, finished_at, retain_ms from tidemill.outcome
where id > $1::uuid order by id limit $2::int8;

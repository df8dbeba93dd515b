-- Frees the keys of jobs that have finished; who was kept for afterwards gets its turn. Answers their queues.
select tidemill.release($1::text[], $2::uuid[], coalesce($3::timestamptz, now()));

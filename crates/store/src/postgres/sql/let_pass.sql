-- Lets those pass who wait behind dead letters that are given up. Answers their queues.
select tidemill.let_pass($1::uuid[], coalesce($2::timestamptz, now()));

-- Lets runs, which are locked, go on if what they wait for has come; answers their queues.
select q from tidemill.wake_runs($2::uuid[], coalesce($1::timestamptz, now())) q where q is not null;

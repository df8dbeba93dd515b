-- Makes a job that waits for the clock due now; answers its queue, or null when it does not wait so.
select tidemill.run_now($2::uuid, coalesce($1::timestamptz, now()));

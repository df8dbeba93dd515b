-- Ends the jobs of steps that will not run.
select tidemill.skip_steps($2::uuid[], $3::int4[], $4::text[], coalesce($1::timestamptz, now()));

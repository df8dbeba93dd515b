-- Locks runs, in order; says how much mail they have, and whether they must not go on.
select r.job, r.mail, r.paused, coalesce($1, now()) from tidemill.lock_runs($2::uuid[], coalesce($1::timestamptz, now())) r;

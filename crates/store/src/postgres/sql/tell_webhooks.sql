-- Tells webhooks how these jobs have ended, as their outcomes are now; no row where nobody is told.
select true
where exists (select from tidemill.webhook) and tidemill.tell_webhooks($2::uuid[], coalesce($1::timestamptz, now()));

-- Whether the time of a flow is over: nothing of it goes on from then on. Its lock is held; it may have been waited for.
select from tidemill.flow where id = $2::uuid and forget_at <= coalesce($1::timestamptz, clock_timestamp());

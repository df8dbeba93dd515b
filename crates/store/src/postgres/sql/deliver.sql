-- Puts mail into the boxes of runs and wakes those that wait for it; answers the queues of these.
select q from tidemill.deliver($2::uuid[], $3::text[], $4::text[], coalesce($1::timestamptz, now())) q
where q is not null;

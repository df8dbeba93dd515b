-- Flows that have not ended in time.
select id from tidemill.flow
where finished_at is null and expires_at <= coalesce($1::timestamptz, now()) and state in (0, 1)
order by expires_at limit $2::int8;

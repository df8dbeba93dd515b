-- Whether a flow has not ended in time and may be called off: it may have been given more since it was found. Its lock
-- is held.
select from tidemill.flow f
where f.id = $2::uuid and f.finished_at is null and f.expires_at <= coalesce($1::timestamptz, now())
    and f.state in (0, 1)
    and not exists (select from tidemill.flow_step s where s.flow = f.id and s.pivot and s.state = 3);

-- Flows that have not ended in time. A saga past its point of no return goes on.
select f.id from tidemill.flow f
where f.finished_at is null and f.expires_at <= coalesce($1::timestamptz, now()) and f.state in (0, 1)
    and not exists (select from tidemill.flow_step s where s.flow = f.id and s.pivot and s.state = 3)
order by f.expires_at limit $2::int8;

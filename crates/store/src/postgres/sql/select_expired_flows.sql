-- A page of flows that have not ended in time, behind one. A saga past its point of no return goes on.
select f.id, f.expires_at from tidemill.flow f
where f.finished_at is null and f.expires_at <= coalesce($1::timestamptz, now()) and f.state in (0, 1)
    and ($3::timestamptz is null or (f.expires_at, f.id) > ($3::timestamptz, $4::uuid))
    and not exists (select from tidemill.flow_step s where s.flow = f.id and s.pivot and s.state = 3)
order by f.expires_at, f.id limit $2::int8;

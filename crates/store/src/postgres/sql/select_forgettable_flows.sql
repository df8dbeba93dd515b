-- A page of flows whose time is over, behind one.
select id, forget_at from tidemill.flow
where forget_at <= coalesce($1::timestamptz, now())
    and ($3::timestamptz is null or (forget_at, id) > ($3::timestamptz, $4::uuid))
order by forget_at, id limit $2::int8;

-- Flows whose time is over.
select id from tidemill.flow where forget_at <= coalesce($1::timestamptz, now()) order by forget_at limit $2::int8;

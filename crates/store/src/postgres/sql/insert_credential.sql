-- Keeps a credential unless a live one has its name or too many are live; sent again it is the same. Answers whether
-- it is kept, and whether its name was taken.
with p as (select coalesce($1::timestamptz, now()) as now),
live as (
    select c.name from tidemill.credential c, p
    where c.id <> $2::uuid and c.revoked_at is null and (c.expires_at is null or c.expires_at > p.now)
),
taken as (select from live where name = $3::text),
kept as (
    insert into tidemill.credential (id, name, hash, role, queues, tenant, created_at, expires_at)
    select $2, $3, $4::bytea, $5::text, $6::text[], $7::text, p.now, p.now + $8::int8 * interval '1 us'
    from p
    where not exists (select from taken) and (select count(*) from live) < $9::int8
    on conflict (id) do nothing
    returning id
)
select exists (select from kept) or exists (select from tidemill.credential where id = $2),
    exists (select from taken);

-- Keeps a credential unless a live one has its name or too many are live; sent again it is the same.
with live (name) as (
    select name from tidemill_credential
    where id <> ?2 and revoked_at is null and (expires_at is null or expires_at > ?1)
)
insert into tidemill_credential (id, name, hash, role, queues, tenant, created_at, expires_at)
select ?2, ?3, ?4, ?5, ?6, ?7, ?1, ?8
where (select count(*) from live) < ?9 and not exists (select 1 from live where name = ?3)
on conflict (id) do nothing

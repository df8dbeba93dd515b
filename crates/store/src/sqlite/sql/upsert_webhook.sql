-- Makes a webhook (version ?6 = 0), or sets it if it has this version and is no other of its name.
insert into tidemill_webhook (id, name, webhook, secrets, version, created_at, changed_at)
select ?1, ?2, ?3, ?4, 1, ?5, ?5
where ?6 = 0 or exists (select 1 from tidemill_webhook where name = ?2)
on conflict (name) do update
set webhook = excluded.webhook, secrets = excluded.secrets, version = version + 1, changed_at = excluded.changed_at
where version = ?6 and id = excluded.id

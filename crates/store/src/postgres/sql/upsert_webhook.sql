-- Makes a webhook (version $7 = 0), or sets it if it has this version and is no other of its name; answers a row if it did.
insert into tidemill.webhook as w (id, name, webhook, secrets, options, version, created_at, changed_at)
select $2::uuid, $3::text, $4::text::jsonb, $5::text, $6::text::json, 1, coalesce($1::timestamptz, now()),
    coalesce($1, now())
where $7::int8 = 0 or exists (select from tidemill.webhook o where o.name = $3)
on conflict (name) do update set webhook = excluded.webhook, secrets = excluded.secrets, options = excluded.options,
    version = w.version + 1, changed_at = excluded.changed_at
where w.version = $7 and w.id = excluded.id
returning 1;

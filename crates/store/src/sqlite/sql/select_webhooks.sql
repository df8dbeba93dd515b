-- All webhooks, by name.
select id, name, webhook, secrets, version, created_at, changed_at from tidemill_webhook order by name

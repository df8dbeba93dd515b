-- All webhooks, by name.
select w.id, w.name::text, w.webhook::text, w.secrets, w.version, w.created_at, w.changed_at
from tidemill.webhook w order by w.name;

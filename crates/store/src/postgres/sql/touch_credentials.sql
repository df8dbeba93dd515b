-- Notes when credentials were last used; never earlier than is known, and without waiting for anybody.
with used as (select * from unnest($1::uuid[], $2::timestamptz[]) u (id, at)),
free as (select c.id from tidemill.credential c where c.id = any ($1) for no key update skip locked)
update tidemill.credential c set used_at = u.at
from used u, free f
where c.id = u.id and f.id = c.id and (c.used_at is null or c.used_at < u.at);

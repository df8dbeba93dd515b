-- What objects are from now on. Who writes holds the head of their line, so nobody else does. A tenant may be null.
insert into tidemill.object (queue, tenant, key, changed_at, state)
select o.queue, coalesce(o.tenant, ''), o.key, coalesce($1::timestamptz, now()), o.state::json
from unnest($2::text[], $3::text[], $4::text[], $5::text[]) o(queue, tenant, key, state)
on conflict (queue, tenant, key) do update set state = excluded.state, changed_at = excluded.changed_at;

-- What objects are from now on. Who writes holds the head of their line, so nobody else does.
insert into tidemill.object (queue, key, changed_at, state)
select o.queue, o.key, coalesce($1::timestamptz, now()), o.state::json
from unnest($2::text[], $3::text[], $4::text[]) o(queue, key, state)
on conflict (queue, key) do update set state = excluded.state, changed_at = excluded.changed_at;

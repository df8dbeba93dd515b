-- What an object is from now on. Who writes holds the head of its line, so nobody else does.
insert into tidemill_object (queue, tenant, key, changed_at, state) values (?1, coalesce(?2, ''), ?3, ?4, ?5)
on conflict (queue, tenant, key) do update set state = excluded.state, changed_at = excluded.changed_at

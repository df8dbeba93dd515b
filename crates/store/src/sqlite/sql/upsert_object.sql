-- What an object is from now on. Who writes holds the head of its line, so nobody else does.
insert into tidemill_object (queue, key, changed_at, state) values (?1, ?2, ?3, ?4)
on conflict (queue, key) do update set state = excluded.state, changed_at = excluded.changed_at

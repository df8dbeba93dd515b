-- Steps that are run again become history, under other names; their flow's lock is held.
update tidemill.flow_step s set name = i.name, superseded = true
from unnest($2::int4[], $3::text[]) i(number, name)
where s.flow = $1::uuid and s.number = i.number;

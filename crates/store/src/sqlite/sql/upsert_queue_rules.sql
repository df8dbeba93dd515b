-- Sets the rules of a queue, unless ?3 is given and not the version that is there.
insert into tidemill_queue (name, rules, version) values (?1, ?2, 1)
on conflict (name) do update set rules = excluded.rules, version = version + 1
where ?3 in (0, version)

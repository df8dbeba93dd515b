-- Sets the rules of a queue, unless ?3 is given and not the version that is there.
insert into tidemill_queue (name, rules, version, depth_max, overflow, wait_ms, divert, high_water, low_water)
values (?1, ?2, 1, ?4, ?5, ?6, ?7, ?8, ?9)
on conflict (name) do update
set rules = excluded.rules, version = version + 1, depth_max = excluded.depth_max, overflow = excluded.overflow,
    wait_ms = excluded.wait_ms, divert = excluded.divert, high_water = excluded.high_water,
    low_water = excluded.low_water
where ?3 in (0, version)

-- Sets the rules of a queue if what is there has the version ?3; 0 is any and none, -1 is none. Versions begin with the
-- edition that follows: those of rules that were taken away before are less.
insert into tidemill_queue (name, rules, version, depth_max, overflow, wait_ms, divert, high_water, low_water)
select ?1, ?2, (select edition + 1 from tidemill_rulebook), ?4, ?5, ?6, ?7, ?8, ?9
where ?3 <= 0 or exists (select 1 from tidemill_queue where name = ?1)
on conflict (name) do update
set rules = excluded.rules, version = version + 1, depth_max = excluded.depth_max, overflow = excluded.overflow,
    wait_ms = excluded.wait_ms, divert = excluded.divert, high_water = excluded.high_water,
    low_water = excluded.low_water
where ?3 in (0, version)

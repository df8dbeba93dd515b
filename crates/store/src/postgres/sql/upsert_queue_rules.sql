-- Sets the rules of a queue if what is there has the version $3; 0 is any and none, -1 is none. Answers the new version.
-- Versions begin with the edition that follows: those of rules that were taken away before are less.
insert into tidemill.queue as q (name, rules, version, depth_max, overflow, wait_ms, divert, high_water, low_water)
select $1::text, $2::text::json, (select b.edition + 1 from tidemill.rulebook b),
    $4::int8, $5::text, $6::int8, $7::text, $8::int8, $9::int8
where $3::int8 <= 0 or exists (select from tidemill.queue where name = $1::text)
on conflict (name) do update
set rules = excluded.rules, version = q.version + 1, depth_max = excluded.depth_max, overflow = excluded.overflow,
    wait_ms = excluded.wait_ms, divert = excluded.divert, high_water = excluded.high_water,
    low_water = excluded.low_water
where $3::int8 in (0, q.version)
returning version;

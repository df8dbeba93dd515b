-- Sets the rules of a queue, unless $3 is given and not the version that is there. Answers the new version.
-- Whoever is held at a gate may try anew: it may be another gate now.
with rules as (
    insert into tidemill.queue as q (name, rules, version) values ($1::text, $2::text::json, 1)
    on conflict (name) do update set rules = excluded.rules, version = q.version + 1
    where $3::int8 in (0, q.version)
    returning version
), tried as (
    update tidemill.ready set line = 1, gate = '' where line = 2 and exists (select from rules)
)
select version from rules;

-- Letters are again what they were when a plan was made, as far as the plan changed them; that is noted.
with letter as (
    update tidemill.dead d
    set triage = case when $4::boolean then l.triage else d.triage end,
        archived = case when $5::boolean then l.archived else d.archived end, redrives = d.redrives - $6::int2
    from tidemill.plan_letter l
    where l.plan = $2::uuid and l.id = d.id and d.id = any ($3::uuid[])
    returning d.id
)
insert into tidemill.note (id, at, by_whom, text)
select id, coalesce($1::timestamptz, now()), $7::text, $8::text from letter;

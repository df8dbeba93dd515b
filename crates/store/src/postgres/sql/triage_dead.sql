-- Notes something on dead letters and sets their triage or puts them aside, if asked. Answers which there were.
with letter as (
    update tidemill.dead set triage = coalesce($5::int2, triage), archived = coalesce($6::boolean, archived)
    where id = any ($2::uuid[]) returning id
), note as (
    insert into tidemill.note (id, at, by_whom, text)
    select id, coalesce($1::timestamptz, now()), $3::text, $4::text from letter where $4 <> ''
)
select id from letter;

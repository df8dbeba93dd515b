-- Notes something on dead letters and sets their triage or puts them aside, if asked. Answers which there were.
-- Only a note is for those that are not dead now.
with letter as (
    update tidemill.dead d set triage = coalesce($5::int2, triage), archived = coalesce($6::boolean, archived)
    where d.id = any ($2::uuid[]) and ($5::int2 is null and $6::boolean is null or d.triage <> 2 and exists (
        select from tidemill.outcome o where o.id = d.id and o.state = 6))
    returning d.id
), note as (
    insert into tidemill.note (id, at, by_whom, text)
    select id, coalesce($1::timestamptz, now()), $3::text, $4::text from letter where $4 <> ''
)
select id from letter;

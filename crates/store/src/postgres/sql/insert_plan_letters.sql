-- The letters of a new plan: all that fit its filter now, as they are; one more than it may have tells that there are more.
-- Only those whose jobs are dead at this moment; with $15 no jobs of flows, which are forgotten with their flow.
with letter as (
    insert into tidemill.plan_letter (plan, id, died_at, triage, archived, redrives)
    select $14::uuid, d.id, d.died_at, d.triage, d.archived, d.redrives
    from tidemill.dead d
    where (cardinality($1::uuid[]) = 0 or d.id = any ($1))
        and ($2::text is null or d.kind = $2) and ($3::text is null or d.queue = $3)
        and ($4::text is null or d.tenant = $4) and ($5::text is null or d.fingerprint = $5)
        and ($6::int2 is null or d.triage = $6)
        and ($7::text is null or exists (
            select from tidemill.job j where j.id = d.id and (j.options::jsonb -> 'tags') ? $7))
        and ($8::timestamptz is null or d.died_at >= $8) and ($9::timestamptz is null or d.died_at < $9)
        and ($10::text is null or position($10 in d.error) > 0)
        and ($11::text[] is null or exists (
            select from tidemill.job j where j.id = d.id and j.payload #>> $11 = $12::text))
        and (cardinality($1::uuid[]) > 0 or d.archived = $13::boolean)
        and d.triage <> 2 and exists (
            select from tidemill.outcome o
            where o.id = d.id and o.state = 6 and not o.bare and (not $15::boolean or o.flow is null))
    limit $16::int8
    returning id
)
select count(*) from letter;

-- A page of dead letters, latest death first, after a place if one is given. Every condition given must hold.
-- Those that are named by id, archived or asked for as retrying are found whatever became of their jobs; others while
-- they are dead.
select d.id, d.kind, d.queue, d.tenant, d.class, d.error, d.fingerprint, d.attempt, d.died_at, d.triage, d.redrives,
    d.archived,
    (select o.state from tidemill.outcome o where o.id = d.id limit 1) as state
from tidemill.dead d
where (cardinality($1::uuid[]) = 0 or d.id = any ($1))
    and ($2::text is null or d.kind = $2) and ($3::text is null or d.queue = $3)
    and ($4::text is null or d.tenant = $4) and ($5::text is null or d.fingerprint = $5)
    and ($6::int2 is null or d.triage = $6)
    and ($7::text is null or exists (
        select from tidemill.job j where j.id = d.id and (j.options::jsonb -> 'tags') ? $7))
    and d.died_at >= coalesce($8::timestamptz, '-infinity') and d.died_at < coalesce($9::timestamptz, 'infinity')
    and ($10::text is null or position($10 in d.error) > 0)
    and ($11::text[] is null or exists (
        select from tidemill.job j where j.id = d.id and j.payload #>> $11 = $12::text))
    and (cardinality($1::uuid[]) > 0 or d.archived = $13::boolean and ($13 or $6::int2 = 2 or exists (
        select from tidemill.outcome o where o.id = d.id and o.state = 6 offset 0)))
    and (d.died_at, d.id) < (coalesce($14::timestamptz, 'infinity'), coalesce($15::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
order by d.died_at desc, d.id desc limit $16::int8;

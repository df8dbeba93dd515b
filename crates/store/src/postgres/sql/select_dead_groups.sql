-- How many dead letters there are of each fingerprint, most numerous first; which count is as in a page
-- of them.
select d.fingerprint, (array_agg(d.kind order by d.died_at desc, d.id desc))[1],
    (array_agg(d.class order by d.died_at desc, d.id desc))[1],
    (array_agg(d.error order by d.died_at desc, d.id desc))[1], count(*), count(*) filter (where d.triage = 0),
    min(d.died_at), max(d.died_at), (array_agg(d.id order by d.died_at desc, d.id desc))[1]
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
group by d.fingerprint order by count(*) desc, max(d.died_at) desc limit 1000;

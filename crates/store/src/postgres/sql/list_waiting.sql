-- A page of jobs that wait, for a slot or ($9) for the clock, newest first, made before $1; walks all sheaves.
select j.id
from tidemill.ready s, unnest(s.ids[s.taken + 1:]) i(id), lateral (
    select * from tidemill.job j where j.id = i.id limit 1
) j
where i.id < $1::uuid and (s.run_at > coalesce($8::timestamptz, now())) = $9::boolean and s.run_at < '9999-01-01Z'
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by i.id desc limit $2::int8;

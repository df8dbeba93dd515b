-- A page of jobs that run, newest first, made before $1.
select j.id
from tidemill.lease l, unnest(l.ids) i(id), lateral (select * from tidemill.job j where j.id = i.id limit 1) j
where i.id < $1::uuid and i.id <> all (l.gone)
    and not exists (select from tidemill.outcome o where o.id = i.id offset 0)
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by i.id desc limit $2::int8;

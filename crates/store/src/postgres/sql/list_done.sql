-- A page of done jobs, newest first, made before $1; looks no further than $8.
select j.id from tidemill.outcome o join tidemill.job j on j.id = o.id
where o.id < $1::uuid and o.id >= $8::uuid and o.state = 4
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by o.id desc limit $2::int8;

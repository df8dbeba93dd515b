-- A page of jobs in any state, newest first, made before $1; looks no further than $8.
select j.id from tidemill.job j
where j.id < $1::uuid and j.id >= $8::uuid
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by j.id desc limit $2::int8;

-- A page of jobs that are kept for after another, newest first, made before $1.
select j.id from tidemill.unique_key u join tidemill.job j on j.id = u.next_id
where u.next_id is not null and u.next_id < $1::uuid
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by j.id desc limit $2::int8;

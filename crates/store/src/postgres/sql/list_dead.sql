-- A page of dead jobs, newest first, made before $1; by way of the dead letters, which are fewer.
select j.id from tidemill.dead d join tidemill.job j on j.id = d.id
where d.id < $1::uuid and exists (select from tidemill.outcome o where o.id = d.id and o.state = 6 offset 0)
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by d.id desc limit $2::int8;

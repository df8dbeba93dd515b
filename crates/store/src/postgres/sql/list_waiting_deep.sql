-- As list_waiting, for a deep backlog: walks the jobs, newest first, until the page is full, but not beyond $10.
select j.id from tidemill.job j
where j.id < $1::uuid and j.id >= $10::uuid and exists (
        select from tidemill.ready s
        where s.seq = tidemill.sheaf_of(j.id) and j.id = any (s.ids[s.taken + 1:])
            and (s.run_at > coalesce($8::timestamptz, now())) = $9::boolean and s.run_at < '9999-01-01Z')
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by j.id desc limit $2::int8;

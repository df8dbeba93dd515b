-- A page of jobs that wait for another one, newest first, made before $1: kept for after the holder of their unique
-- key, behind the first of their line, in a step of a flow that has not let them go; and runs that wait for mail, or
-- for somebody.
select j.id from (
    select u.next_id as id from tidemill.unique_key u where u.next_id is not null
    union select w.id from tidemill.line_waiting w
    union select j.id from tidemill.flow f
    join tidemill.flow_step s on s.flow = f.id and s.state < 2
    join tidemill.job j on j.flow = s.flow and j.step = s.number
        and case when s.slow then j.sheaf = 0 else j.place > s.opened end
    where f.finished_at is null and not exists (select from tidemill.outcome o where o.id = j.id offset 0)
    union select r.job from tidemill.run r
    where (r.waits is not null and r.waits ->> 'until' is null or r.parked is not null or r.paused)
        and not exists (select from tidemill.outcome o where o.id = r.job offset 0)
) b join tidemill.job j on j.id = b.id
where b.id < $1::uuid
    and ($3::text is null or j.kind = $3) and ($4::text is null or j.queue = $4)
    and ($5::text is null or j.tenant = $5) and ($6::text is null or j.key = $6)
    and ($7::text is null or (j.options::jsonb -> 'tags') ? $7)
order by j.id desc limit $2::int8;

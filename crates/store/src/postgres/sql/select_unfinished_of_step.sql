-- A page of jobs of a step that have not finished, after this one.
select j.id from tidemill.job j
where j.flow = $1::uuid and j.step = $2::int4 and ($3::uuid is null or j.id > $3)
    and not exists (select from tidemill.outcome o where o.id = j.id offset 0)
order by j.id limit $4::int8;

-- A page of what the jobs of a step returned, by id.
select o.id, o.output::text from tidemill.outcome o
where o.flow = $1::uuid and o.step = $2::int4 and ($3::uuid is null or o.id > $3)
order by o.id limit $4::int8;

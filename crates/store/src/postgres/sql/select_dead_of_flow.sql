-- A page of the dead jobs of a flow, or of one of its steps.
select o.id from tidemill.outcome o
where o.flow = $1::uuid and o.step = coalesce($2::int4, o.step) and o.state = 6 limit $3::int8;

-- A page of the dead jobs of a flow, or of one of its steps, behind one of them; not of what was run again.
select o.id, o.step from tidemill.outcome o
where o.flow = $1::uuid and (o.step, o.id) > ($4::int4, $5::uuid) and o.step = coalesce($2::int4, o.step) and o.state = 6
    and not exists (
        select from tidemill.flow_step s where s.flow = o.flow and s.number = o.step and s.superseded)
order by o.step, o.id limit $3::int8;

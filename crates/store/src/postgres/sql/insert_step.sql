-- Adds a step without jobs, and edges, to a flow whose lock is held.
with step as (
    insert into tidemill.flow_step (flow, number, name, state, jobs, "left", joined, parents_left, slow, early,
        undoes, grown)
    values ($1::uuid, $2::int4, $3::text, 0, 0, 0, '{"need":{"all":{}}}', $8::int4, $4::boolean, false,
        $9::int4, $9 is null)
)
insert into tidemill.flow_edge (flow, from_step, to_step, on_end)
select $1, e.from_step, e.to_step, e.on_end
from unnest($5::int4[], $6::int4[], $7::int2[]) e(from_step, to_step, on_end);

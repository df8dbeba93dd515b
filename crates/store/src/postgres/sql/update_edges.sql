-- Writes what expressions came to.
update tidemill.flow_edge e set held = i.held
from unnest($1::uuid[], $2::int4[], $3::int4[], $4::boolean[]) i(flow, from_step, to_step, held)
where e.flow = i.flow and e.from_step = i.from_step and e.to_step = i.to_step;

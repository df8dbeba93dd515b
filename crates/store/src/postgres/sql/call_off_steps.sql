-- Notes that the parents of these steps that have not ended are to be called off.
update tidemill.flow_step s set call_off = true, call_offs = s.call_offs + 1
from unnest($1::uuid[], $2::int4[]) i(flow, step)
join tidemill.flow_edge e on e.flow = i.flow and e.to_step = i.step
where s.flow = e.flow and s.number = e.from_step and s.state < 3;

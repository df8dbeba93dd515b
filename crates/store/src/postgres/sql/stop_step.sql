-- Notes that the jobs of these steps are to be called off.
update tidemill.flow_step s set call_off = true, call_offs = s.call_offs + 1
from unnest($1::uuid[], $2::int4[]) i(flow, step) where s.flow = i.flow and s.number = i.step;

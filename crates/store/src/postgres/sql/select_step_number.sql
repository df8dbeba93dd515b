-- The number of a step, and whether its jobs wait for the clock or in a line.
select number, slow, parents_left > 0 from tidemill.flow_step where flow = $1::uuid and name = $2::text;

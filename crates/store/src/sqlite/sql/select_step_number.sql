-- The number of a step, and whether it waits for others.
select number, parents_left > 0 from tidemill_flow_step where flow = ?1 and name = ?2

-- Jobs of a step that is being built wait for the clock or in a line.
update tidemill.flow_step set slow = true where flow = $1::uuid and number = $2::int4;

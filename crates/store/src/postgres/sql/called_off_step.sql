-- All jobs of a step have been called off.
update tidemill.flow_step set call_off = false where flow = $1::uuid and number = $2::int4;

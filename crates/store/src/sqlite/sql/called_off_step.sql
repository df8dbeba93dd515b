-- All jobs of a step have been called off.
update tidemill_flow_step set call_off = 0 where flow = ?1 and number = ?2

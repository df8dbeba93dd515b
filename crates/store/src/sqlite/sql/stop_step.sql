-- Notes that the jobs of a step are to be called off.
update tidemill_flow_step set call_off = 1 where flow = ?1 and number = ?2

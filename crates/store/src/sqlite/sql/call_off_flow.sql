-- Notes that all jobs of a flow that are on their way are to be called off.
update tidemill_flow_step set call_off = 1 where flow = ?1 and state in (1, 2) and undoes is null

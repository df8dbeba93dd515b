-- Steps of a flow of which some jobs are still to be let go, in order. Of one that is being called off none is.
select number from tidemill_flow_step where flow = ?1 and state = 1 and not call_off order by number

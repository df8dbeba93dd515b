-- Steps of a flow of which some jobs are still to be let go, in order.
select number from tidemill_flow_step where flow = ?1 and state = 1 order by number

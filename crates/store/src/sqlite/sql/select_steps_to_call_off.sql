-- Steps of a flow whose jobs are to be called off.
select number from tidemill_flow_step where flow = ?1 and call_off and state < 3 order by number

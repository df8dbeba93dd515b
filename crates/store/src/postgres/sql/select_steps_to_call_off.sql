-- Steps of a flow whose jobs are to be called off, and how often that was noted.
select number, call_offs from tidemill.flow_step where flow = $1::uuid and call_off and state < 3 order by number;

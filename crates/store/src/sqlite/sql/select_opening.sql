-- Steps of a flow of which some jobs are still to be let go, the one that was opened last first: under a cap it gets
-- the next place, as an alarm must that answers the first of many failures. The others wait for no longer than it has
-- jobs to let go, and what a flow grows by has bounds. Of a step that is being called off none is let go.
select number from tidemill_flow_step
where flow = ?1 and state = 1 and not call_off
order by started_at desc, number

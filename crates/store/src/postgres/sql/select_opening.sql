-- Steps of these flows of which some jobs are still to be let go, the one that was opened last first: under a cap it gets
-- the next place, as an alarm must that answers the first of many failures. The others wait for no longer than it has
-- jobs to let go, and what a flow grows by has bounds. Of a step that is being called off none is let go.
select s.flow, s.number from unnest($1::uuid[]) i(flow), lateral (
    select * from tidemill.flow_step s where s.flow = i.flow and s.state = 1 and not s.call_off
) s
order by s.flow, s.started_at desc, s.number;

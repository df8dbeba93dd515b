-- Steps of these flows of which some jobs are still to be let go, in order. Of one that is being called off none is.
select s.flow, s.number from unnest($1::uuid[]) i(flow), lateral (
    select * from tidemill.flow_step s where s.flow = i.flow and s.state = 1 and not s.call_off
) s
order by s.flow, s.number;

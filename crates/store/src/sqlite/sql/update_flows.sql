-- Writes how far a flow is; one whose steps have all ended is over. One has failed if a step of it did, or was
-- late, and nothing that comes after that ran, but for steps that jobs of it added; what was run again does not count. It is kept as long as it
-- asks for, one that is undone as one that failed. When it begins, and when it goes on after its end or was stuck, its time counts anew;
-- why it ended before is no more.
update tidemill_flow
set state = ended.state, jobs_open = ?5, tend = tend or ?6,
    state_at = case when tidemill_flow.state = ended.state then state_at when ended.state in (5, 6, 8) then ?1 end,
    expires_at = iif(
        (tidemill_flow.state in (0, 8) or finished_at is not null) and ended.state not in (0, 2, 3, 4, 7, 8),
        ?1 + 1000 * within_ms, expires_at
    ),
    reason = iif(finished_at is null or ended.state in (2, 3, 4, 7), reason, null),
    finished_at = iif(ended.state in (2, 3, 4, 7), ?1, null),
    forget_at = iif(ended.state in (2, 3, 4, 7), ?1 + 1000 * iif(ended.state in (3, 7), retain_failed_ms, retain_ms), null)
from (
    select case
        when ?3 not in (1, 5, 6) or not ?4
            or exists (select 1 from tidemill_flow_step where flow = ?2 and state < 3) then ?3
        when ?3 = 5 then 4
        when ?3 = 6 then 7
        when exists (
            -- Steps that something which ran comes after or, of those that were lost, something that is answered.
            with recursive answered (number) as (
                select edge.from_step
                from tidemill_flow_edge as edge
                join tidemill_flow_step as next
                    on next.flow = edge.flow and next.number = edge.to_step and next.state between 1 and 4
                        and not next.grown and not next.superseded
                where edge.flow = ?2
                union
                select edge.from_step
                from answered
                join tidemill_flow_step as lost
                    on lost.flow = ?2 and lost.number = answered.number and lost.lost = 1 and not lost.superseded
                join tidemill_flow_edge as edge on edge.flow = ?2 and edge.to_step = lost.number
            )
            select 1 from tidemill_flow_step as step
            where step.flow = ?2 and (step.state = 4 or step.lost = 2) and not step.superseded
                and step.number not in (select number from answered)
        ) then 3
        else 2
    end as state
) as ended
where id = ?2
returning state

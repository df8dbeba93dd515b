-- A page of flows that have not ended in time, behind one. A saga past its point of no return goes on.
select id, expires_at from tidemill_flow as flow
where finished_at is null and expires_at <= ?1 and state in (0, 1)
    and (?3 is null or (expires_at, id) > (?3, ?4)) and not exists (
    select 1 from tidemill_flow_step as step where step.flow = flow.id and step.pivot and step.state = 3
)
order by expires_at, id
limit ?2

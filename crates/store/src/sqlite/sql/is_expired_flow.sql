-- Whether a flow has not ended in time and may be called off: it may have been given more since it was found.
select 1 from tidemill_flow as flow
where id = ?2 and finished_at is null and expires_at <= ?1 and state in (0, 1) and not exists (
    select 1 from tidemill_flow_step as step where step.flow = flow.id and step.pivot and step.state = 3
)

-- A page of the dead jobs of a flow, or of one of its steps; not of what was run again.
select id from tidemill_outcome as outcome
where flow = ?1 and (?2 is null or step = ?2) and state = 6 and not exists (
    select 1 from tidemill_flow_step as step
    where step.flow = outcome.flow and step.number = outcome.step and step.superseded
)
limit ?3

-- A flow has been tended: nothing of it is to be opened or called off any more.
update tidemill_flow set tend = 0
where id = ?1 and not exists (
    select 1 from tidemill_flow_step as step
    where step.flow = tidemill_flow.id
        and (step.state = 1 and tidemill_flow.at_once is null or step.call_off and step.state < 3)
)

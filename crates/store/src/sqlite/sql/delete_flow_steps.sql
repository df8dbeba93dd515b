-- Forgets the steps of a flow.
delete from tidemill_flow_step where flow = ?1

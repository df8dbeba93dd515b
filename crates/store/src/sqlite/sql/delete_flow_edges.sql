-- Forgets the edges of a flow.
delete from tidemill_flow_edge where flow = ?1

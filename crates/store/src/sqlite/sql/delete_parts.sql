-- Forgets what a flow was built of.
delete from tidemill_flow_part where flow = ?1

-- Writes what an expression came to.
update tidemill_flow_edge set held = ?4 where flow = ?1 and from_step = ?2 and to_step = ?3

-- A job that was sent again waits in its step for a place: it has not been let go, and those up to ?3 have.
update tidemill_flow_step set opened = min(opened, ?3) where flow = ?1 and number = ?2

-- A step that is run again becomes history, under another name.
update tidemill_flow_step set name = ?3, superseded = 1 where flow = ?1 and number = ?2

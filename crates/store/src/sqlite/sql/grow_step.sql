-- A step has so many jobs more.
update tidemill_flow_step set jobs = jobs + ?3, left = left + ?3 where flow = ?1 and number = ?2

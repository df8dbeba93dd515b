-- A step that is being built has so many more jobs; with ?4, some of them wait for the clock or in a line.
update tidemill_flow_step set jobs = jobs + ?3, left = left + ?3, slow = slow or ?4 where flow = ?1 and number = ?2

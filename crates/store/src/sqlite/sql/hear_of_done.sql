-- A step that waits hears that ?3 jobs are done; with ?4, the last of a step; with ?5, it is opened.
update tidemill_flow_step
set met = met + ?3, parents_left = parents_left - ?4, came = came + ?4, state = iif(?5, 2, 0),
    started_at = iif(?5, ?6, null)
where flow = ?1 and number = ?2

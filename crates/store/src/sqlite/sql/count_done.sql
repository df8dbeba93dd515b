-- ?3 jobs of a step are done; with ?4, they were the last.
update tidemill_flow_step
set left = left - ?3, ok = ok + ?3, state = iif(?4, 3, state), call_off = call_off and not ?4,
    ended_at = iif(?4, ?5, null)
where flow = ?1 and number = ?2

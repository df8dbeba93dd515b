-- Whether all steps of a flow have ended, and none of them failed.
select coalesce(min(state), 3) > 2, coalesce(max(state = 4 or lost = 2), 0) from tidemill_flow_step where flow = ?1

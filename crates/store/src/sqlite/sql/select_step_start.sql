-- When a step was opened.
select started_at from tidemill_flow_step where flow = ?1 and number = ?2

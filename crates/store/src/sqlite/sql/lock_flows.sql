-- Where a flow stands.
select id, name, state, steps_left, jobs_open, at_once, created_at, saga from tidemill_flow where id = ?1

-- Where a flow stands.
select id, name, state, jobs_open, at_once, created_at, saga from tidemill_flow where id = ?1

-- Flows that have not ended in time.
select id from tidemill_flow
where finished_at is null and expires_at <= ?1 and state in (0, 1) order by expires_at limit ?2

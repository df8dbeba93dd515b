-- The first tenant of a lane, and when its first job is due. '' is who has none.
select tenant, run_at from tidemill_ready
where queue = ?1 and priority = ?2
order by tenant, run_at
limit 1

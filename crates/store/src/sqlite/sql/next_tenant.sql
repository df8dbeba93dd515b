-- The first tenant of a lane behind ?3, and when its first job is due.
select tenant, run_at from tidemill_ready
where queue = ?1 and priority = ?2 and tenant > ?3
order by tenant, run_at
limit 1

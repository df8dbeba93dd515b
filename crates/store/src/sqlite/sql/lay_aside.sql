-- Lays aside what a tenant of a lane has waiting for the clock, at most ?5 rows: turns pass it by.
update tidemill_ready set priority = priority + 20, line = 3
where (queue, priority, tenant, run_at, id) in (
    select queue, priority, tenant, run_at, id from tidemill_ready
    where queue = ?1 and priority = ?2 and tenant = ?3 and run_at > ?4
    order by run_at
    limit ?5
)

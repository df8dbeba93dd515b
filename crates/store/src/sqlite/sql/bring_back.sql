-- Brings what was laid aside in a lane and is due by now back to where it stood, at most ?4 rows.
update tidemill_ready set priority = priority - 20, line = 0
where (queue, priority, tenant, run_at, id) in (
    select queue, priority, tenant, run_at, id from tidemill_ready
    where queue = ?1 and priority = ?2 + 20 and tenant <> '' and run_at <= ?3
    order by run_at
    limit ?4
)

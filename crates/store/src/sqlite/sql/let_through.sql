-- Lets the first ones through that a gate holds; they are where they stood before.
update tidemill_ready set priority = priority - 10, line = 1, gate = ''
where (queue, priority, tenant, run_at, id) in (
    select queue, priority, tenant, run_at, id from tidemill_ready where line = 2 and gate = ?1
    order by run_at, id limit ?2
)

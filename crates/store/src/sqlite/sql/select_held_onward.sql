-- Those that gates before ?7 hold, behind this place in their order.
select queue, run_at, id, priority, tenant, gate from tidemill_ready
where line = 2 and gate < ?7 and (gate, queue, priority, tenant, run_at, id) > (?1, ?2, ?3, ?4, ?5, ?6)
order by gate, queue, priority, tenant, run_at, id limit ?8

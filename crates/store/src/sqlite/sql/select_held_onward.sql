-- Those that gates before ?5 hold, behind this place in their order.
select queue, run_at, id, priority, tenant, gate from tidemill_ready
where line = 2 and gate < ?5 and (gate, queue, run_at, id) > (?1, ?2, ?3, ?4)
order by gate, queue, run_at, id limit ?6

-- The first tenant of a lane behind ?4 of whom a gate holds something.
select tenant from tidemill_ready indexed by tidemill_ready_held
where line = 2 and gate = ?1 and queue = ?2 and priority = ?3 + 10 and tenant > ?4
order by tenant limit 1

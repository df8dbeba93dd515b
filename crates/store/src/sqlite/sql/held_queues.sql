-- The queues of those that a gate holds, and of those whose claims it turned away.
select queue from tidemill_ready where line = 2 and gate = ?1
union
select queue from tidemill_turned_away where gate = ?1

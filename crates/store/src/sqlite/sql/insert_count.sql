-- Counts jobs that came into a queue and went out of it, in the transaction that moved them.
insert into tidemill_count (queue, tenant, came, went, now) values (?1, ?2, ?3, ?4, ?5)

-- When to look at a job again.
insert or ignore into tidemill_deadline (at, id) values (?1, ?2)

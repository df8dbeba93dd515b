-- A job waits for a slot or the clock, or behind the others of its line. The view is a procedure.
insert into tidemill_start (id, now) values (?1, ?2)

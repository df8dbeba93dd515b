-- A job leaves its line; if it was the first, the next one starts. The view is a procedure.
insert into tidemill_leave (id, now) values (?1, ?2)

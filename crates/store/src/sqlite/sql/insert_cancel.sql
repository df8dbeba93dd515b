-- A running job is called off; the first reason stays.
insert or ignore into tidemill_cancel (token, id, reason) values (?1, ?2, ?3)

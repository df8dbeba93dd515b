-- A remark or an act on a dead letter.
insert into tidemill_note (id, at, by, text) values (?1, ?2, ?3, ?4)

-- A job that was called off is settled.
delete from tidemill_cancel where token = ?1 and id = ?2

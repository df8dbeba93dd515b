-- A worker is gone; from now on it gets nothing.
delete from tidemill_worker where id = ?1

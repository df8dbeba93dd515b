-- A dead letter gets another payload before it runs again.
update tidemill_job set payload = ?2 where id = ?1

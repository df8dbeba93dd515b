-- A job that waits is changed; where it waits is not.
update tidemill_job set priority = ?2, payload = ?3, options = ?4 where id = ?1

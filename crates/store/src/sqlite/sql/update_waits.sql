-- Notes what a run waits for.
update tidemill_run set wake_at = ?2, waits = ?3, parked = ?4, wake_token = ?5 where job = ?1

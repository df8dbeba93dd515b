-- Where the ready row of a job without attempts stands from now on.
update tidemill_job set run_at = ?2 where id = ?1

-- When a job that waits in a line, or for the holder of its key, is due by itself.
select run_at from tidemill_job where id = ?1 and run_at > 0

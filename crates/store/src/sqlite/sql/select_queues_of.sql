-- The queue in which a job is.
select queue from tidemill_job where id = ?1

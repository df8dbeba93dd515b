-- The queue of a running job.
select queue from tidemill_job where id = ?1

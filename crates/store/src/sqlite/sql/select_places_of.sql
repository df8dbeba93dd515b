-- Where a job is, and whose.
select queue, tenant from tidemill_job where id = ?1

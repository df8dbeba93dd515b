-- What limits look at in a job.
select queue, kind, coalesce(tenant, ''), coalesce(key, '') from tidemill_job where id = ?1

-- Whether this job is there and has not finished.
select 1 from tidemill_job where id = ?1 and not exists (select 1 from tidemill_outcome where id = ?1)

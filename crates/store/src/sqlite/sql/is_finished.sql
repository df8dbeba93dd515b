-- Whether a job has an outcome.
select 1 from tidemill_outcome where id = ?1

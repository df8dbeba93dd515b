-- Whether an attempt of this job has begun.
select 1 from tidemill_begun where id = ?1

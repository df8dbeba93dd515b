-- Whether something is kept of the run of a job.
select 1 from tidemill_run where job = ?1

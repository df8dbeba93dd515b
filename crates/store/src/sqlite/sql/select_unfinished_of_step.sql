-- A page of jobs of a step that have not finished, after this one.
select job.id from tidemill_job as job
where job.flow = ?1 and job.step = ?2 and (?3 is null or job.id > ?3)
    and not exists (select 1 from tidemill_outcome where id = job.id)
order by job.id
limit ?4

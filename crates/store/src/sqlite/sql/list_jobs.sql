-- A page of jobs in any state, newest first; looks no further than ?8.
select job.id
from tidemill_job as job
where job.id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
    and job.id >= coalesce(?8, x'')
    and (?2 is null or job.kind = ?2)
    and (?3 is null or job.queue = ?3)
    and (?4 is null or job.tenant = ?4)
    and (?5 is null or job.key = ?5)
    and (?6 is null or exists (select 1 from json_each(job.options, '$.tags') where value = ?6))
order by job.id desc
limit ?7

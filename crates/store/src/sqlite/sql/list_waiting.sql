-- A page of jobs that wait for a slot (?10 = 1) or for the clock (?10 = 0) at ?9, newest first; walks all that wait.
select ready.id
from tidemill_ready as ready
where ready.id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
    and (ready.run_at <= ?9) = ?10 and ready.run_at < 253370764800000000
    and (?2 is null or ready.kind = ?2)
    and (?3 is null or ready.queue = ?3)
    and (coalesce(?4, ?5, ?6) is null or exists (
        select 1 from tidemill_job as job
        where job.id = ready.id
            and (?4 is null or job.tenant = ?4)
            and (?5 is null or job.key = ?5)
            and (?6 is null or exists (
                select 1 from json_each(job.options, '$.tags') where value = ?6
            ))
    ))
order by ready.id desc
limit ?7

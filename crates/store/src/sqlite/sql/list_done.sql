-- A page of jobs that are done, newest first; looks no further than ?8.
select outcome.id
from tidemill_outcome as outcome
where outcome.state = 4
    and outcome.id < coalesce(?1, x'ffffffffffffffffffffffffffffffffff')
    and outcome.id >= coalesce(?8, x'')
    and (?3 is null or outcome.queue = ?3)
    and (coalesce(?2, ?4, ?5, ?6) is null or exists (
        select 1 from tidemill_job as job
        where job.id = outcome.id
            and (?2 is null or job.kind = ?2)
            and (?4 is null or job.tenant = ?4)
            and (?5 is null or job.key = ?5)
            and (?6 is null or exists (
                select 1 from json_each(job.options, '$.tags') where value = ?6
            ))
    ))
order by outcome.id desc
limit ?7

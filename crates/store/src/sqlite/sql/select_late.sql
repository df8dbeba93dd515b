-- Jobs in line that the deadlines of their queue make late: to start, due by ?2 and never begun; to finish, enqueued by
-- ?3. Nobody's due time is before his enqueue. Those that have a deadline of their own are looked at by that.
with late as (
    select waiting.id, waiting.run_at, waiting.spent
    from tidemill_ready as waiting
    where waiting.queue = ?1
        and waiting.priority in (0, 1, 2, 3)
        and waiting.tenant = ''
        and waiting.run_at <= max(ifnull(?2, ?3), ifnull(?3, ?2))
    union all
    select waiting.id, waiting.run_at, waiting.spent
    from tidemill_ready as waiting indexed by tidemill_ready_due
    where waiting.queue = ?1
        and waiting.priority in (0, 1, 2, 3)
        and waiting.tenant <> ''
        and waiting.run_at <= max(ifnull(?2, ?3), ifnull(?3, ?2))
)
select late.id
from late join tidemill_job as job on job.id = late.id
where late.spent = 0
        and late.run_at <= ?2
        and json_extract(job.options, '$.start_within_ms') is null
        and not exists (select 1 from tidemill_begun as begun where begun.id = late.id)
    or job.created_at <= ?3
        and json_extract(job.options, '$.finish_within_ms') is null
        and json_extract(job.options, '$.replayed_at') is null
limit ?4

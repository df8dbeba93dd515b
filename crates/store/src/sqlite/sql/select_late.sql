-- Jobs in line that the deadlines of their queue make late: to start, due by ?2 and never begun; to finish, enqueued by
-- ?3, or replayed (to the millisecond). Nobody's due time is before his enqueue; one that was put off, or had a delay,
-- became due later: of what did by ?5, at most ?6 of each band are looked at. Those that have a deadline of their own are
-- looked at by that.
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
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting
        where waiting.queue = ?1 and waiting.priority = 0 and waiting.tenant = ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting
        where waiting.queue = ?1 and waiting.priority = 1 and waiting.tenant = ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting
        where waiting.queue = ?1 and waiting.priority = 2 and waiting.tenant = ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting
        where waiting.queue = ?1 and waiting.priority = 3 and waiting.tenant = ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting indexed by tidemill_ready_due
        where waiting.queue = ?1 and waiting.priority = 0 and waiting.tenant <> ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting indexed by tidemill_ready_due
        where waiting.queue = ?1 and waiting.priority = 1 and waiting.tenant <> ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting indexed by tidemill_ready_due
        where waiting.queue = ?1 and waiting.priority = 2 and waiting.tenant <> ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
    union all
    select * from (
        select waiting.id, waiting.run_at, waiting.spent
        from tidemill_ready as waiting indexed by tidemill_ready_due
        where waiting.queue = ?1 and waiting.priority = 3 and waiting.tenant <> ''
            and waiting.run_at > max(ifnull(?2, ?3), ?3) and waiting.run_at <= ?5
        order by waiting.run_at
        limit ?6
    )
)
select late.id
from late join tidemill_job as job on job.id = late.id
where late.spent = 0
        and late.run_at <= ?2
        and json_extract(job.options, '$.start_within_ms') is null
        and not exists (select 1 from tidemill_begun as begun where begun.id = late.id)
    or job.created_at <= ?3
        and json_extract(job.options, '$.finish_within_ms') is null
        and ifnull(unixepoch(json_extract(job.options, '$.replayed_at'), 'subsec') * 1000000 <= ?3 + 1000, 1)
limit ?4

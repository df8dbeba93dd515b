-- Records what a step came to, if this token still holds its run; the bytes of an id count only where one begins.
insert or ignore into tidemill_journal (job, number, at, entry)
select unhex(replace(?1, '-', '')), cast(?3 as integer), cast((julianday('now') - 2440587.5) * 86400000000 as integer), ?4
from tidemill_lease as l
where l.token = cast(?2 as integer) and exists (
    with recursive place(at) as (
        select 1
        union all
        select at + 20 from place where at + 20 < length(l.jobs)
    )
    select 1 from place where substr(l.jobs, at, 16) = unhex(replace(?1, '-', ''))
)
returning 'recorded'

-- Decides that a job is done, if this token still holds it; the bytes of an id count only where one begins.
insert or replace into tidemill_decided (id, token, output, follow_ups)
select unhex(replace(?1, '-', '')), l.token, ?3, ?4
from tidemill_lease as l
where l.token = cast(?2 as integer) and exists (
    with recursive place(at) as (
        select 1
        union all
        select at + 20 from place where at + 20 < length(l.jobs)
    )
    select 1 from place where substr(l.jobs, at, 16) = unhex(replace(?1, '-', ''))
)
returning 'decided'

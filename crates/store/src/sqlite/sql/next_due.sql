-- When the next job of a lane that waits for the clock is due.
select min(run_at) from (
    select * from (
        select run_at from tidemill_ready
        where queue = ?1 and priority = ?2 and tenant = '' and run_at > ?3
        order by run_at
        limit 1
    )
    union all
    select * from (
        select run_at from tidemill_ready
        where queue = ?1 and priority = ?2 and tenant <> '' and run_at > ?3
        order by run_at
        limit 1
    )
)

-- What is before a job that waits at this place; every count goes up to ?7, so that nobody walks over a million.
select
    (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?1 and priority = ?2 and tenant = '' and (run_at, id) < (?4, ?5) limit ?7
        )
    ) + (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?1 and priority in (?2, ?2 + 20) and tenant <> ''
                and run_at <= ?4 and (run_at < ?4 or id < ?5)
            limit ?7
        )
    ),
    (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?1 and priority in (?2, ?2 + 20) and tenant = ?3 and (run_at, id) < (?4, ?5) limit ?7
        )
    ),
    (
        select count(*) from (
            select 1 from tidemill_ready indexed by tidemill_ready_held
            where line = 2 and gate = ?6 and queue = ?1 and priority = ?2 + 10 and tenant = ?3
                and (run_at, id) < (?4, ?5)
            limit ?7
        )
    ) + ?7 * (
        -- Others with whom it takes turns.
        exists (
            select 1 from tidemill_ready indexed by tidemill_ready_held
            where line = 2 and gate = ?6 and (queue, priority, tenant) < (?1, ?2 + 10, ?3)
        )
        or exists (
            select 1 from tidemill_ready indexed by tidemill_ready_held
            where line = 2 and gate = ?6 and (queue, priority, tenant) > (?1, ?2 + 10, ?3)
        )
    )

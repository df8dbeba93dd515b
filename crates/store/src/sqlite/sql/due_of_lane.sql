-- Whether something of a lane is due: of nobody in particular, and of tenants.
select
    exists (
        select 1 from tidemill_ready where queue = ?1 and priority = ?2 and tenant = '' and run_at <= ?3
    ),
    exists (
        select 1 from tidemill_ready where queue = ?1 and priority = ?2 and tenant <> '' and run_at <= ?3
    )

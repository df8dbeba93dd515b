-- How many jobs of a lane are due, counted up to ?4 with and without a tenant.
select
    (
        select count(*) from (
            select 1 from tidemill_ready where queue = ?1 and priority = ?2 and tenant = '' and run_at <= ?3 limit ?4
        )
    ) + (
        select count(*) from (
            select 1 from tidemill_ready where queue = ?1 and priority in (?2, ?2 + 20) and tenant <> '' and run_at <= ?3
            limit ?4
        )
    )

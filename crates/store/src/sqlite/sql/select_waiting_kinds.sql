-- The kinds of the first jobs of a band of a queue, looking at ?3 of them with and without a tenant.
select kind from (
    select kind from tidemill_ready where queue = ?1 and priority = ?2 and tenant = '' order by run_at limit ?3
)
union
select kind from (
    select kind from tidemill_ready where queue = ?1 and priority = ?2 and tenant <> '' order by run_at limit ?3
)
union
select kind from (
    select kind from tidemill_ready where queue = ?1 and priority = ?2 + 20 and tenant <> '' order by run_at limit ?3
)

-- The bands of a queue of which something is due, whether it is (also) of tenants, and whether some of that was laid aside.
with band (number) as (values (0), (1), (2), (3)), due as (
    select
        number,
        exists (
            select 1 from tidemill_ready
            where queue = ?1 and priority = number and tenant = '' and run_at <= ?2
        ) as open,
        exists (
            select 1 from tidemill_ready
            where queue = ?1 and priority = number and tenant <> '' and run_at <= ?2
        ) as crowded,
        exists (
            select 1 from tidemill_ready
            where queue = ?1 and priority = number + 20 and tenant <> '' and run_at <= ?2
        ) as aside
    from band
)
select number, crowded or aside, aside from due where open or crowded or aside

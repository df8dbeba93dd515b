-- The bands of a queue of which something is due, and whether it is (also) of tenants.
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
        ) as crowded
    from band
)
select number, crowded from due where open or crowded

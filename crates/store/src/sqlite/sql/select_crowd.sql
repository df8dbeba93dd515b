-- What stands in each band of a queue: jobs that are due, those that wait for the clock and those that wait to be woken,
-- each counted up to ?3 with and without a tenant; when the next and the last are due. What gates hold is not counted.
with band (number) as (values (0), (1), (2), (3))
select
    (
        select count(*) from (
            select 1 from tidemill_ready where queue = ?2 and priority = number and tenant = '' and run_at <= ?1 limit ?3
        )
    ) + (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?2 and priority in (number, number + 20) and tenant <> '' and run_at <= ?1
            limit ?3
        )
    ),
    (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?2 and priority = number and tenant = '' and run_at > ?1 and run_at < 253370764800000000
            limit ?3
        )
    ) + (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?2 and priority in (number, number + 20) and tenant <> ''
                and run_at > ?1 and run_at < 253370764800000000
            limit ?3
        )
    ),
    (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?2 and priority = number and tenant = '' and run_at >= 253370764800000000
            limit ?3
        )
    ) + (
        select count(*) from (
            select 1 from tidemill_ready
            where queue = ?2 and priority in (number, number + 20) and tenant <> '' and run_at >= 253370764800000000
            limit ?3
        )
    ),
    (
        select min(run_at) from tidemill_ready
        where queue = ?2 and priority = number and tenant = '' and run_at > ?1 and run_at < 253370764800000000
    ),
    (
        select min(run_at) from tidemill_ready
        where queue = ?2 and priority = number and tenant <> '' and run_at > ?1 and run_at < 253370764800000000
    ),
    (
        select min(run_at) from tidemill_ready
        where queue = ?2 and priority = number + 20 and tenant <> '' and run_at > ?1 and run_at < 253370764800000000
    ),
    (
        select max(run_at) from tidemill_ready
        where queue = ?2 and priority = number and tenant = '' and run_at > ?1 and run_at < 253370764800000000
    ),
    (
        select max(run_at) from tidemill_ready
        where queue = ?2 and priority = number and tenant <> '' and run_at > ?1 and run_at < 253370764800000000
    ),
    (
        select max(run_at) from tidemill_ready
        where queue = ?2 and priority = number + 20 and tenant <> '' and run_at > ?1 and run_at < 253370764800000000
    )
from band

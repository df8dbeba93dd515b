-- The limits whose gates have something to remember.
with recursive known (base) as (
    select min(base) from tidemill_gate
    union all
    select (select min(base) from tidemill_gate where base > known.base) from known where known.base is not null
)
select base from known where base is not null

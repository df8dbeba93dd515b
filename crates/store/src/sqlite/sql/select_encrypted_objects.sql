-- Rows of object after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
with spot as (
    select substr(?1, 1, instr(?1, char(31)) - 1) as queue, substr(?1, instr(?1, char(31)) + 1) as rest
)
select queue || char(31) || tenant || char(31) || key, 0,
    case when state like '%"tdm1:%' then state end,
    null
from tidemill_object
where (queue, tenant, key) > (
        (select spot.queue from spot),
        (select substr(spot.rest, 1, instr(spot.rest, char(31)) - 1) from spot),
        (select substr(spot.rest, instr(spot.rest, char(31)) + 1) from spot)
    )
    and ?2 is not null
order by queue, tenant, key
limit ?3

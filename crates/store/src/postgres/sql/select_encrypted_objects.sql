-- Rows of object after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select queue || chr(31) || tenant || chr(31) || key, 0::int8,
    case when state::text like '%"tdm1:%' then state::text end,
    null::text
from tidemill.object
where (queue, tenant, key) > (
        split_part($1::text, chr(31), 1), split_part($1::text, chr(31), 2), split_part($1::text, chr(31), 3))
    and $2::int8 is not null
order by queue, tenant, key
limit $3::int8

-- Rows of outcome that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select id::text, 0::int8, output::text, null::text
from tidemill.outcome
where id > $1::text::uuid and $2::int8 is not null
    and (output::text like '%"tdm1:%')
order by id
limit $3::int8

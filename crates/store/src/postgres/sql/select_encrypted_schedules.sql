-- Rows of schedule that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select name, 0::int8, definition::text, null::text
from tidemill.schedule
where name > $1::text and $2::int8 is not null
    and (definition::text like '%"tdm1:%')
order by name
limit $3::int8

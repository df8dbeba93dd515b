-- Rows of schedule after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select name, 0::int8,
    case when definition::text like '%"tdm1:%' then definition::text end,
    null::text
from tidemill.schedule
where name > $1::text and $2::int8 is not null
order by name
limit $3::int8

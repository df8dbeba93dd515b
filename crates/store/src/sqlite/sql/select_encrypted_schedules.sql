-- Rows of schedule that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select name, 0, definition, null
from tidemill_schedule
where name > ?1 and ?2 is not null
    and (definition like '%"tdm1:%')
order by name
limit ?3

-- Rows of schedule after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select name, 0,
    case when definition like '%"tdm1:%' then definition end,
    null
from tidemill_schedule
where name > ?1 and ?2 is not null
order by name
limit ?3

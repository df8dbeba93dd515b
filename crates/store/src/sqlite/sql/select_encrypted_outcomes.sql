-- Rows of outcome that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select lower(hex(id)), 0, output, null
from tidemill_outcome
where id > unhex(replace(?1, '-', '')) and ?2 is not null
    and (output like '%"tdm1:%')
order by id
limit ?3

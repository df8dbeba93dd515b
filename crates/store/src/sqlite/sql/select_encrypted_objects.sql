-- Rows of object that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select queue || char(31) || key, 0, state, null
from tidemill_object
where (queue, key) > (substr(?1, 1, instr(?1, char(31)) - 1), substr(?1, instr(?1, char(31)) + 1)) and ?2 is not null
    and (state like '%"tdm1:%')
order by queue, key
limit ?3

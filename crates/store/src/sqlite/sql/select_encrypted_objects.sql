-- Rows of object after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select queue || char(31) || key, 0,
    case when state like '%"tdm1:%' then state end,
    null
from tidemill_object
where (queue, key) > (substr(?1, 1, instr(?1, char(31)) - 1), substr(?1, instr(?1, char(31)) + 1)) and ?2 is not null
order by queue, key
limit ?3

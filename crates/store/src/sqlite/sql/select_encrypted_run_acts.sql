-- Rows of run_act that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select '', number, was, became
from tidemill_run_act
where number > ?2 and ?1 is not null
    and (was like '%"tdm1:%' or became like '%"tdm1:%')
order by number
limit ?3

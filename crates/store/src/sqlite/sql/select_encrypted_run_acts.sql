-- Rows of run_act after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select '', number,
    case when was like '%"tdm1:%' or became like '%"tdm1:%' then was end,
    case when was like '%"tdm1:%' or became like '%"tdm1:%' then became end
from tidemill_run_act
where number > ?2 and ?1 is not null
order by number
limit ?3

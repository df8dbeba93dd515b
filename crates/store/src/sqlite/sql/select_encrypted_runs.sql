-- Rows of run after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select lower(hex(job)), 0,
    case when state like '%"tdm1:%' then state end,
    null
from tidemill_run
where job > unhex(replace(?1, '-', '')) and ?2 is not null
order by job
limit ?3

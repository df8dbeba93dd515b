-- Rows of run that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select lower(hex(job)), 0, state, null
from tidemill_run
where job > unhex(replace(?1, '-', '')) and ?2 is not null
    and (state like '%"tdm1:%')
order by job
limit ?3

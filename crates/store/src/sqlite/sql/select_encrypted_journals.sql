-- Rows of journal that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select lower(hex(job)), number, entry, value
from tidemill_journal
where (job, number) > (unhex(replace(?1, '-', '')), ?2)
    and (entry like '%"tdm1:%' or value like '%"tdm1:%')
order by job, number
limit ?3

-- Rows of journal after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select lower(hex(job)), number,
    case when entry like '%"tdm1:%' or value like '%"tdm1:%' then entry end,
    case when entry like '%"tdm1:%' or value like '%"tdm1:%' then value end
from tidemill_journal
where (job, number) > (unhex(replace(?1, '-', '')), ?2)
order by job, number
limit ?3

-- Rows of stream after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select lower(hex(job)), first,
    case when chunks like '%"tdm1:%' or progress like '%"tdm1:%' then chunks end,
    case when chunks like '%"tdm1:%' or progress like '%"tdm1:%' then progress end
from tidemill_stream
where (job, first) > (unhex(replace(?1, '-', '')), ?2)
order by job, first
limit ?3

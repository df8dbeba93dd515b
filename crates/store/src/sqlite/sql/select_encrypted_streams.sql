-- Rows of stream that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select lower(hex(job)), first, chunks, progress
from tidemill_stream
where (job, first) > (unhex(replace(?1, '-', '')), ?2)
    and (chunks like '%"tdm1:%' or progress like '%"tdm1:%')
order by job, first
limit ?3

-- Rows of mail that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select lower(hex(job)), number, content, answer
from tidemill_mail
where (job, number) > (unhex(replace(?1, '-', '')), ?2)
    and (content like '%"tdm1:%' or answer like '%"tdm1:%')
order by job, number
limit ?3

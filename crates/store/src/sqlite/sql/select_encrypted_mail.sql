-- Rows of mail after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select lower(hex(job)), number,
    case when content like '%"tdm1:%' or answer like '%"tdm1:%' then content end,
    case when content like '%"tdm1:%' or answer like '%"tdm1:%' then answer end
from tidemill_mail
where (job, number) > (unhex(replace(?1, '-', '')), ?2)
order by job, number
limit ?3

-- Rows of mail that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select job::text, number::int8, content::text, answer::text
from tidemill.mail
where (job, number) > ($1::text::uuid, $2::int8)
    and (content::text like '%"tdm1:%' or answer::text like '%"tdm1:%')
order by job, number
limit $3::int8

-- Rows of mail after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select job::text, number::int8,
    case when content::text like '%"tdm1:%' or answer::text like '%"tdm1:%' then content::text end,
    case when content::text like '%"tdm1:%' or answer::text like '%"tdm1:%' then answer::text end
from tidemill.mail
where (job, number) > ($1::text::uuid, $2::int8)
order by job, number
limit $3::int8

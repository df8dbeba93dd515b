-- Rows of journal that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select job::text, number::int8, entry::text, value::text
from tidemill.journal
where (job, number) > ($1::text::uuid, $2::int8)
    and (entry::text like '%"tdm1:%' or value::text like '%"tdm1:%')
order by job, number
limit $3::int8

-- Rows of journal after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select job::text, number::int8,
    case when entry::text like '%"tdm1:%' or value::text like '%"tdm1:%' then entry::text end,
    case when entry::text like '%"tdm1:%' or value::text like '%"tdm1:%' then value::text end
from tidemill.journal
where (job, number) > ($1::text::uuid, $2::int8)
order by job, number
limit $3::int8

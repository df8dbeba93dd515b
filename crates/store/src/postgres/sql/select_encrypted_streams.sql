-- Rows of stream after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select job::text, first::int8,
    case when chunks::text like '%"tdm1:%' or progress::text like '%"tdm1:%' then chunks::text end,
    case when chunks::text like '%"tdm1:%' or progress::text like '%"tdm1:%' then progress::text end
from tidemill.stream
where (job, first) > ($1::text::uuid, $2::int8)
order by job, first
limit $3::int8

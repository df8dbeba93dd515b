-- Rows of stream that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select job::text, first::int8, chunks::text, progress::text
from tidemill.stream
where (job, first) > ($1::text::uuid, $2::int8)
    and (chunks::text like '%"tdm1:%' or progress::text like '%"tdm1:%')
order by job, first
limit $3::int8

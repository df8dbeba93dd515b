-- Rows of run that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select job::text, 0::int8, state::text, null::text
from tidemill.run
where job > $1::text::uuid and $2::int8 is not null
    and (state::text like '%"tdm1:%')
order by job
limit $3::int8

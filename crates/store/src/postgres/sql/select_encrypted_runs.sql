-- Rows of run after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select job::text, 0::int8,
    case when state::text like '%"tdm1:%' then state::text end,
    null::text
from tidemill.run
where job > $1::text::uuid and $2::int8 is not null
order by job
limit $3::int8

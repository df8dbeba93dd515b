-- Rows of run_act that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select '', number, was::text, became::text
from tidemill.run_act
where number > $2::int8 and $1::text is not null
    and (was::text like '%"tdm1:%' or became::text like '%"tdm1:%')
order by number
limit $3::int8

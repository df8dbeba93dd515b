-- Rows of run_act after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select '', number,
    case when was::text like '%"tdm1:%' or became::text like '%"tdm1:%' then was::text end,
    case when was::text like '%"tdm1:%' or became::text like '%"tdm1:%' then became::text end
from tidemill.run_act
where number > $2::int8 and $1::text is not null
order by number
limit $3::int8

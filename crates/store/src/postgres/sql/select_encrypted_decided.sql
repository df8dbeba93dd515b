-- Rows of decided after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select id::text, 0::int8,
    case when output::text like '%"tdm1:%' or follow_ups::text like '%"tdm1:%' then output::text end,
    case when output::text like '%"tdm1:%' or follow_ups::text like '%"tdm1:%' then follow_ups::text end
from tidemill.decided
where id > $1::text::uuid and $2::int8 is not null
order by id
limit $3::int8

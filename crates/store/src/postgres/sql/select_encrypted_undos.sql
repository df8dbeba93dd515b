-- Rows of flow_step after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select flow::text, number::int8,
    case when undo::text like '%"tdm1:%' then undo::text end,
    null::text
from tidemill.flow_step
where (flow, number) > ($1::text::uuid, $2::int8)
order by flow, number
limit $3::int8

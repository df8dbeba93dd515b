-- Rows of flow_step that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select flow::text, number::int8, undo::text, null::text
from tidemill.flow_step
where (flow, number) > ($1::text::uuid, $2::int8)
    and (undo::text like '%"tdm1:%')
order by flow, number
limit $3::int8

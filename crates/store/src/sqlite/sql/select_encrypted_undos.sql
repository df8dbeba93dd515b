-- Rows of flow_step that hold encrypted values, after this one, in order. Parameters that a table has no use for are only looked at.
select lower(hex(flow)), number, undo, null
from tidemill_flow_step
where (flow, number) > (unhex(replace(?1, '-', '')), ?2)
    and (undo like '%"tdm1:%')
order by flow, number
limit ?3

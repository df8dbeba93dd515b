-- Rows of flow_step after this one, in order; with their values where one is encrypted. Parameters that a table has no use for are only looked at.
select lower(hex(flow)), number,
    case when undo like '%"tdm1:%' then undo end,
    null
from tidemill_flow_step
where (flow, number) > (unhex(replace(?1, '-', '')), ?2)
order by flow, number
limit ?3

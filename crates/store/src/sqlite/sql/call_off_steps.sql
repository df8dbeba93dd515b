-- Notes that the parents of a step that have not ended are to be called off.
update tidemill_flow_step set call_off = 1
where flow = ?1 and state < 3 and number in (
    select from_step from tidemill_flow_edge where flow = ?1 and to_step = ?2
)

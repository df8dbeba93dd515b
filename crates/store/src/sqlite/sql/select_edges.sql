-- The edges of a flow.
select from_step, to_step, on_end, when_holds, held from tidemill_flow_edge where flow = ?1

-- Writes an edge of a flow.
insert into tidemill_flow_edge (flow, from_step, to_step, on_end, when_holds) values (?1, ?2, ?3, ?4, ?5)

-- Writes a flow in the caller's own transaction, unless it is there already.
insert into tidemill_start_flow (flow, jobs, now_us) values (?1, ?2, ?3)

-- A flow takes back that a job of it failed; or, with ?3, it is done after all.
insert into tidemill_flow_arrival (flow, step, ok, failed) values (?1, ?2, ?3, -1)

-- A flow takes back that a job of it failed.
insert into tidemill_flow_arrival (flow, step, ok, failed) values (?1, ?2, 0, -1)

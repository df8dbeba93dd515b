-- Notes a part of a flow, in the transaction that adds its jobs.
insert into tidemill_flow_part (flow, key, print, jobs) values (?1, ?2, ?3, ?4)

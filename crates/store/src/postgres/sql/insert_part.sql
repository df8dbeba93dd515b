-- Notes a part of a flow, in the transaction that adds its jobs.
insert into tidemill.flow_part (flow, key, print, jobs) values ($1::uuid, $2::text, $3::text, $4::int8);

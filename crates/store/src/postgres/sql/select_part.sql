-- A part of a flow: by what it is told, and how many jobs it had.
select print, jobs from tidemill.flow_part where flow = $1::uuid and key = $2::text;

-- A part of a flow: by what it is told, and how many jobs it had.
select print, jobs from tidemill_flow_part where flow = ?1 and key = ?2

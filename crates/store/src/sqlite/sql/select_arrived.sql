-- A page of flows of which something has ended and nobody has counted it, behind one.
select distinct flow from tidemill_flow_arrival where flow > ?2 order by flow limit ?1

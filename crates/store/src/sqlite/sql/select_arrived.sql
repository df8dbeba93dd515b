-- Flows of which something has ended and nobody has counted it.
select distinct flow from tidemill_flow_arrival limit ?1

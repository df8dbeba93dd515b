-- Flows of which something has ended and nobody has counted it: whoever should have is gone.
select distinct flow from tidemill.flow_arrival limit $1::int8;

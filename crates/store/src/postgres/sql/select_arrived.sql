-- A page of flows of which something has ended and nobody has counted it, behind one: whoever should have is gone.
select distinct flow from tidemill.flow_arrival where flow > $2::uuid order by flow limit $1::int8;

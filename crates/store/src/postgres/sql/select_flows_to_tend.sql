-- Flows that are to be opened further or called off.
select id from tidemill.flow where tend order by id limit $1::int8;

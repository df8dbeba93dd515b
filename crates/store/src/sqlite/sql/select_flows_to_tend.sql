-- Flows that are to be opened further or called off.
select id from tidemill_flow where tend order by id limit ?1

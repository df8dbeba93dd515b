-- A page of flows that are to be opened further or called off, behind one.
select id from tidemill_flow where tend and id > ?2 order by id limit ?1

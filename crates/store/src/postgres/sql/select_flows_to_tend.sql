-- A page of flows that are to be opened further or called off, behind one.
select id from tidemill.flow where tend and id > $2::uuid order by id limit $1::int8;

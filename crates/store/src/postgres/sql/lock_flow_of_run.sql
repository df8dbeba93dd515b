-- Locks the flow of a run, if it is of one, before the run itself, as everywhere.
select f.id from tidemill.flow f
where f.id = (select j.flow from tidemill.job j where j.id = $1::uuid limit 1) for share;

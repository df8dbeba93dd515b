-- What was made of a dead letter; what is not given stays.
update tidemill_dead
set triage = coalesce(?2, triage), archived = coalesce(?3, archived)
where id = ?1

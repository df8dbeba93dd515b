-- What was made of a dead letter; what is not given stays. Only a note is for one that is not dead now.
update tidemill_dead
set triage = coalesce(?2, triage), archived = coalesce(?3, archived)
where id = ?1 and (?2 is null and ?3 is null or triage <> 2 and exists (
    select 1 from tidemill_outcome as outcome where outcome.id = ?1 and outcome.state = 6
))

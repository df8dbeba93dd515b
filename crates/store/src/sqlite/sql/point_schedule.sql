-- Notes the last slot and the last job of a schedule; a slot never goes back.
update tidemill_schedule
set last_slot = max(coalesce(last_slot, ?2), coalesce(?2, last_slot)), last_job = ?3
where name = ?1

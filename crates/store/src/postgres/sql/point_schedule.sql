-- Notes the last slot and the last job of a schedule; a slot never goes back.
update tidemill.schedule
set last_slot = greatest(last_slot, $2::timestamptz), last_job = $3::uuid
where name = $1::text;

-- A dead letter is sent on its way again, and that is counted.
update tidemill_dead set triage = 2, redrives = redrives + 1 where id = ?1

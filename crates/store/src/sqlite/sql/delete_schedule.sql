-- Deletes a schedule.
delete from tidemill_schedule where name = ?1

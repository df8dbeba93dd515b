-- Forgets the history of a schedule.
delete from tidemill_schedule_fire where name = ?1

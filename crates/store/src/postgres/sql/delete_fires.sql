-- Forgets the history of a schedule.
delete from tidemill.schedule_fire where name = $1::text;

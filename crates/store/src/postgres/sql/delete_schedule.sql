-- Deletes a schedule.
delete from tidemill.schedule where name = $1::text;

-- The versions of these schedules, which nobody changes until the transaction ends.
select name, version from tidemill.schedule where name = any ($1::text[]) order by name for update;

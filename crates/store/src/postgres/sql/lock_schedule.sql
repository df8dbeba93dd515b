-- The last job of a schedule in this version; nobody fires it until the transaction ends.
select last_job from tidemill.schedule where name = $1::text and version = $2::int8 for update;

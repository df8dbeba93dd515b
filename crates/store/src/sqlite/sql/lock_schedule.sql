-- The last job of a schedule in this version; nobody fires it until the transaction ends.
select last_job from tidemill_schedule where name = ?1 and version = ?2

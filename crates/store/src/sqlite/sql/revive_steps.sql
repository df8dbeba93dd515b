-- A step that was skipped waits again: its jobs have not ended after all.
delete from tidemill_outcome
where state = 5 and step is null and id in (select id from tidemill_job where flow = ?1 and step = ?2)

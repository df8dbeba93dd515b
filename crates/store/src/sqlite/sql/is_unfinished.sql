-- Whether a job is there and has no outcome.
select 1 from tidemill_job j
where j.id = ?1 and not exists (select 1 from tidemill_outcome o where o.id = j.id)

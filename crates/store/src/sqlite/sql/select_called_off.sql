-- Whether this job is a child of a run that was called off, and still runs.
select 1 from tidemill_cancel c join tidemill_job j on j.id = c.id
where c.id = ?1 and json_extract(j.options, '$.parent') = ?2

-- Whether this job is a child of this run: what it carries is not read.
select 1 from tidemill_job j where j.id = ?1 and json_extract(j.options, '$.parent') = ?2

-- A page of jobs of a flow.
select id from tidemill_job where flow = ?1 limit ?2

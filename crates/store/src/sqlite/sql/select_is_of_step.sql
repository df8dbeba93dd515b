-- Whether the job of an id, if there is one, is of this step.
select flow is ?2 and step is ?3 from tidemill_job where id = ?1

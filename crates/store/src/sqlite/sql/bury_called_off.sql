-- What was called off of a step at which a saga is stuck is dead from now on; answers these jobs, and why.
update tidemill_outcome set state = 6
where state = 5 and step is not null and id in (select id from tidemill_job where flow = ?1 and step = ?2)
returning id, attempt, error

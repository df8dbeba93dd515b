-- How a job that is there ended; nulls: not yet.
select o.state, o.output, o.error
from tidemill_job j left join tidemill_outcome o on o.id = j.id
where j.id = ?1

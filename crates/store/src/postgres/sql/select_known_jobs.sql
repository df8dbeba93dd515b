-- Which of these jobs are there, and whether they have finished.
select j.id, coalesce((select true from tidemill.outcome o where o.id = j.id limit 1), false)
from tidemill.job j where j.id = any ($1::uuid[]);

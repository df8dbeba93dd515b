-- Which of these jobs are there, and whether they have finished.
select j.id, exists (select from tidemill.outcome o where o.id = j.id)
from tidemill.job j where j.id = any ($1::uuid[]);

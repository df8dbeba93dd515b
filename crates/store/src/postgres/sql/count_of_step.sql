-- How many jobs have one of these ids and are of this step, and how many are not.
select count(*) filter (where j.flow is not distinct from $2::uuid and j.step is not distinct from $3::int4),
    count(*) filter (where j.flow is distinct from $2 or j.step is distinct from $3)
from tidemill.job j where j.id = any ($1::uuid[]);

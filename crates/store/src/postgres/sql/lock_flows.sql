-- Locks flows, in order, each by a look of its own, and says where they stand.
select f.id, f.name, f.state, f.jobs_open, f.at_once, f.created_at, f.saga
from (select distinct i from unnest($1::uuid[]) i order by i) i, lateral (
    select * from tidemill.flow f where f.id = i.i for update
) f;

-- Jobs that are called off before they were let go count as under way until their end is counted; their flows are locked.
update tidemill.flow f set jobs_open = f.jobs_open + n.number
from (
    select j.flow, count(*) as number from unnest($1::uuid[]) i(id), lateral (
        select j.flow from tidemill.job j where j.id = i.id limit 1
    ) j
    group by j.flow
) n
where f.id = n.flow and f.at_once is not null;

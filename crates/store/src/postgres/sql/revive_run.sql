-- Sends a dead run on its way again with its journal as it is. Answers its queue, and whether it is of a flow.
select r.queue, j.flow is not null
from tidemill.replay(array[$2::uuid], $3::text, null, coalesce($1::timestamptz, now())) r,
    lateral (select j.flow from tidemill.job j where j.id = r.id limit 1) j;

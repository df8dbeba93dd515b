-- Sends dead letters on their way again, all attempts unspent. Answers those that were dead and now are ready, and
-- whether each is of a flow.
select r.id, r.queue, j.flow is not null
from tidemill.replay($2::uuid[], $3::text, $4::text, $5::text::json, $1::timestamptz) r,
    lateral (select j.flow from tidemill.job j where j.id = r.id limit 1) j;

-- Judges a batch that was written in parts, in sheaves behind $4: so many new jobs of each of these queues, none of a
-- lower band than this. What a queue has no room for is refused, and with it everything the transaction wrote.
select tidemill.admit(n.queue, n.jobs, n.band, $4::int8, coalesce($5::timestamptz, now()))
from unnest($1::text[], $2::int8[], $3::int2[]) n(queue, jobs, band);

-- Judges what is first in a flow, so many jobs ($3) of each of these queues ($2), before it is let go; refuses what has no room.
select tidemill.admit_flows($2::text[], $3::int8[], coalesce($1::timestamptz, now()));

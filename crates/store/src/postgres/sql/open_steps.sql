-- Lets jobs of steps go: the next so many of each, or all.
select flow, step, number, is_all, queues
from tidemill.open_steps($2::uuid[], $3::int4[], $4::int8[], coalesce($1::timestamptz, now()));

-- The versions of these schedules, which nobody changes until the transaction ends, the slots for which those wait that do
-- not rest, and the present. One statement later than it began, so it is not the transaction's.
select name, version, case when not paused then next_at end, coalesce($1::timestamptz, clock_timestamp())
from tidemill.schedule where name = any ($2::text[]) order by name for update;

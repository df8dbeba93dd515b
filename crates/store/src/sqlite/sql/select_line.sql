-- The place of a job that waits in a line: how many are before it (up to 100,000), who is first, whether that is dead.
select
    place.key,
    1 + (
        select count(*) from (
            select 1 from tidemill_line_waiting as before
            where before.queue = place.queue and before.tenant = place.tenant and before.key = place.key
                and before.number < place.number
            limit 99999
        )
    ),
    line.head,
    exists (select 1 from tidemill_outcome as outcome where outcome.id = line.head and outcome.state = 6)
from tidemill_line_waiting as place
join tidemill_line as line on line.queue = place.queue and line.tenant = place.tenant and line.key = place.key
where place.id = ?1

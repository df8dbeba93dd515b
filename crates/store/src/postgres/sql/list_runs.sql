-- A page of runs, newest first, made before $1. One that only got mail has not begun.
select r.job
from tidemill.run r join tidemill.job j on j.id = r.job
where r.job < $1::uuid and ($3::text is null or j.kind = $3)
    and (not $4::boolean or not exists (select from tidemill.outcome o where o.id = r.job offset 0))
order by r.job desc limit $2::int8;

-- A page of runs that are parked, newest first, made before $1: of few among many, by an index of their own.
select r.job
from tidemill.run r join tidemill.job j on j.id = r.job
where r.parked is not null and r.job < $1::uuid and ($3::text is null or j.kind = $3)
    and (not $4::boolean or not exists (select from tidemill.outcome o where o.id = r.job offset 0))
order by r.job desc limit $2::int8;

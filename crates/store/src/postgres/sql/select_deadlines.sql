-- Deadlines to look at by now, the earliest first; those that somebody else looks at are left to him.
select d.at, d.id
from tidemill.deadline d
where d.at <= coalesce($1::timestamptz, now())
order by d.at limit $2::int8
for update skip locked;

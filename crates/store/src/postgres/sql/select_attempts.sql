-- The attempts of a job that are kept, oldest first; with the last one, if others went before it, or it was its death.
select a.attempt, a.token, a.worker, a.started_at, a.ended_at, a.class, a.error, a.next_at
from tidemill.attempt a where a.id = $1::uuid
union all
select o.attempt, o.token, o.worker, null, o.finished_at,
    (select d.class from tidemill.dead d where d.id = o.id and o.state = 6), o.error, null
from tidemill.outcome o
where o.id = $1 and o.token is not null
    and (o.state = 6 or exists (select from tidemill.attempt a where a.id = o.id))
    and not exists (select from tidemill.attempt a where a.id = o.id and a.token = o.token)
order by 2;

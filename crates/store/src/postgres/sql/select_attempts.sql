-- The attempts of a job that are kept, oldest first; with the last one, if others went before it, or it was its death.
select a.attempt, a.token, a.worker, a.started_at, a.ended_at, a.class, a.error, a.next_at
from tidemill.attempt a where a.id = $1::uuid
union all
select o.attempt, o.token, o.worker, d.started_at, o.finished_at, d.class, o.error, null
from tidemill.outcome o
left join tidemill.dead d on d.id = o.id and o.state = 6
where o.id = $1 and o.token is not null
    and (o.state = 6 or exists (select from tidemill.attempt a where a.id = o.id))
    and not exists (select from tidemill.attempt a where a.id = o.id and a.token = o.token)
order by 2;

-- Keeps the attempts in whose middle jobs of a step were called off: once these are dead, nothing else tells of them.
insert into tidemill_attempt (id, token, attempt, worker, started_at, ended_at)
select id, token, attempt, worker, finished_at, finished_at from tidemill_outcome
where state = 5 and step is not null and token is not null
    and id in (select id from tidemill_job where flow = ?1 and step = ?2)
on conflict do nothing

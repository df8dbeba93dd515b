-- What became of the steps of a saga that have an undo: how the job ended, what it returned, and whether somebody
-- must doubt that it had no effect. An attempt without a class did not fail: it was put off, or given back.
select s.number, o.state, o.output::text,
    (o.state = 5 and o.worker is not null)
        or exists (
            select from tidemill.attempt a
            where a.id = o.id and coalesce(a.class in ('ambiguous', 'in_doubt', 'lost'), true))
        or exists (select from tidemill.dead d where d.id = o.id and d.class in ('ambiguous', 'in_doubt', 'poison'))
from tidemill.flow_step s, lateral (
    select o.* from tidemill.job j, lateral (
        select * from tidemill.outcome o where o.id = j.id and o.step is not null limit 1
    ) o
    where j.flow = s.flow and j.step = s.number limit 1
) o
where s.flow = $1::uuid and s.undo is not null;

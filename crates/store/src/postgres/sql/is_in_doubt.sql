-- Whether a step of a saga that failed may have taken effect: a job of it is done, or somebody must doubt that it had
-- none. An attempt without a class did not fail: it was put off, or given back.
select exists (
    select from tidemill.job j, lateral (
        select * from tidemill.outcome o where o.id = j.id and o.step is not null limit 1
    ) o
    where j.flow = $1::uuid and j.step = $2::int4 and (
        o.state = 4 or o.state = 5 and o.worker is not null
        or exists (
            select from tidemill.attempt a
            where a.id = o.id and coalesce(a.class in ('ambiguous', 'in_doubt', 'lost'), true))
        or exists (select from tidemill.dead d where d.id = o.id and d.class in ('ambiguous', 'in_doubt', 'poison'))));

-- Whether the time of a flow is over: nothing of it goes on from then on. Its lock is held; it may have been waited for.
-- A job of a step that was run again may have been sent on its way by itself: it keeps what it needs of the others.
select from tidemill.flow f where f.id = $2::uuid and f.forget_at <= coalesce($1::timestamptz, clock_timestamp())
    and not exists (
        select from tidemill.flow_step s, lateral (
            select from tidemill.job j
            where j.flow = s.flow and j.step = s.number
                and not exists (select from tidemill.outcome o where o.id = j.id offset 0)
            limit 1
        ) j
        where s.flow = f.id and s.superseded offset 0);

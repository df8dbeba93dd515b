-- Writes how far flows are; one whose steps have all ended is over. It is kept as long as it asks for, one that is
-- undone as one that failed. When it begins, and when it goes on after its end or was stuck, its time counts
-- anew; why it ended before is no more.
update tidemill.flow f
set state = n.state, jobs_open = i.jobs_open, tend = f.tend or i.tend,
    state_at = case when f.state = n.state then f.state_at
        when n.state in (5, 6, 8) then coalesce($1::timestamptz, now()) end,
    expires_at = case when (f.state in (0, 8) or f.finished_at is not null) and n.state not in (0, 2, 3, 4, 7, 8)
        then coalesce($1::timestamptz, now()) + f.within_ms * interval '1 ms' else f.expires_at end,
    reason = case when f.finished_at is null or n.state in (2, 3, 4, 7) then f.reason end,
    finished_at = case when n.state in (2, 3, 4, 7) then coalesce($1::timestamptz, now()) end,
    forget_at = case when n.state in (2, 3, 4, 7) then coalesce($1::timestamptz, now())
        + case when n.state in (3, 7) then f.retain_failed_ms else f.retain_ms end * interval '1 ms' end
from unnest($2::uuid[], $3::int2[], $4::boolean[], $5::int8[], $6::boolean[]) i(id, state, may_be_over, jobs_open, tend),
lateral (
    select case
        when i.state not in (1, 5, 6) or not i.may_be_over
            or exists (select from tidemill.flow_step s where s.flow = i.id and s.state < 3) then i.state
        when i.state = 5 then 4::int2
        when i.state = 6 then 7::int2
        else tidemill.end_of_flow(i.id) end as state
) n
where f.id = i.id
returning f.id, f.state;

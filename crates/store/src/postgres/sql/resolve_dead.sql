-- Lets the dead jobs of a step count as done, notes it on their letters, and tells the flow; answers how many. How each
-- died stays in its history.
with died as materialized (
    select o.id, o.token, o.attempt, o.worker, d.started_at, o.finished_at, d.class, o.error
    from tidemill.outcome o left join tidemill.dead d on d.id = o.id
    where o.flow = $1::uuid and o.step = $2::int4 and o.state = 6
), resolved as (
    update tidemill.outcome o set state = 4, output = coalesce($3::text, 'null')::json, error = null
    from died d where o.id = d.id
    returning o.id, o.flow, o.step
), history as (
    insert into tidemill.attempt (id, token, attempt, worker, started_at, ended_at, class, error, sheaf)
    select d.id, d.token, d.attempt, d.worker, d.started_at, d.finished_at, d.class, d.error, 0
    from died d where d.token is not null
    on conflict (id, token) do nothing
), letters as (
    update tidemill.dead set archived = true where id = any (array(select id from resolved))
), noted as (
    insert into tidemill.note (id, at, by_whom, text)
    select id, coalesce($4::timestamptz, now()), $5::text, $6::text from resolved
), told as (
    insert into tidemill.flow_arrival (flow, step, ok, failed)
    select flow, step, count(*), -count(*) from resolved group by flow, step
)
select count(*) from resolved;

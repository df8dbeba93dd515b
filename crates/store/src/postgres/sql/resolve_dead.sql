-- Lets the dead jobs of a step count as done, notes it on their letters, and tells the flow; answers how many.
with resolved as (
    update tidemill.outcome set state = 4, output = coalesce($3::text, 'null')::json, error = null
    where flow = $1::uuid and step = $2::int4 and state = 6
    returning id, flow, step
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

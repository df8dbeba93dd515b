-- Writes how jobs ended; a job that has finished stays as it is. The caller holds their leases or sheaves. Appends to
-- flows that jobs of them have ended, and answers these flows; tells webhooks, and answers a row without a flow if so.
with written as (
    insert into tidemill.outcome (
        id, queue, state, attempt, lost, token, worker, finished_at, retain_ms, keyed, output, error, flow, step)
    select i.id, i.queue, i.state, i.attempt, i.lost, i.token, i.worker, coalesce($1::timestamptz, now()), i.retain_ms,
        i.keyed, i.output::json, i.error, j.flow, j.step
    from unnest($2::uuid[], $3::text[], $4::int2[], $5::int2[], $6::int2[], $7::int8[], $8::uuid[], $9::int8[],
        $10::boolean[], $11::text[], $12::text[])
        i(id, queue, state, attempt, lost, token, worker, retain_ms, keyed, output, error)
    left join lateral (select j.flow, j.step from tidemill.job j where j.id = i.id limit 1) j on true
    on conflict (id) do nothing
    returning id, flow, step, state
), arrived as (
    insert into tidemill.flow_arrival (flow, step, ok, failed)
    select w.flow, w.step, count(*) filter (where w.state = 4), count(*) filter (where w.state <> 4)
    from written w where w.step is not null
    group by w.flow, w.step
)
select distinct flow from written where flow is not null
union all
select null from (select array_agg(w.id) as ids from written w where exists (select from tidemill.webhook)) t
where t.ids is not null and tidemill.tell_webhooks(t.ids, coalesce($1, now()));

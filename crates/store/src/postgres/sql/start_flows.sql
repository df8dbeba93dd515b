-- Writes flows whose first steps can be opened whole, and opens these: each flow all of it, or nothing if it is there.
-- Answers those that are new. Some ($4) need room in their queues. What `core`'s rule would decide for them is the same for all: who waits for nobody is open.
with present as materialized (
    select coalesce($1::timestamptz, now()) as now, nextval('tidemill.sheaf') as sheaf
), given as materialized (
    select f.* from json_to_recordset($2::text::json) f(id uuid, name text, finish_within_ms int8, retain_ms int8,
        retain_failed_ms int8, saga boolean, steps json, edges json)
), fresh as materialized (
    insert into tidemill.flow (id, name, state, created_at, within_ms, expires_at, retain_ms, retain_failed_ms, saga)
    select f.id, f.name, 1, p.now, f.finish_within_ms, p.now + f.finish_within_ms * interval '1 ms', f.retain_ms,
        f.retain_failed_ms, f.saga
    from present p, given f
    order by f.id
    on conflict (id) do nothing
    returning id
), step as (
    insert into tidemill.flow_step (flow, number, name, state, jobs, "left", joined, parents_left, slow, early, late_at,
        late_look_at, started_at, undo, pivot, alarms, guarded)
    select f.id, s.number, s.name, case when s.parents = 0 then 2 else 0 end, s.jobs, s.jobs, s.joined, s.parents, s.slow,
        s.early, l.late_at, case when s.parents > 0 then l.late_at end, case when s.parents = 0 then p.now end, s.undo,
        s.pivot, s.alarms, s.guarded
    from present p, given f, json_to_recordset(f.steps) s(number int4, name text, jobs int8, joined json, parents int4,
        slow boolean, early boolean, undo json, pivot boolean, alarms int4, guarded boolean), lateral (
        select p.now + (s.joined ->> 'within_ms')::int8 * interval '1 ms' as late_at
    ) l
    where f.id in (select n.id from fresh n)
), edge as (
    insert into tidemill.flow_edge (flow, from_step, to_step, on_end, when_holds)
    select f.id, e.from_step, e.to_step, e.on_end, e.when_holds
    from given f, json_to_recordset(f.edges) e(from_step int4, to_step int4, on_end int2, when_holds text)
    where f.id in (select n.id from fresh n)
), wanted as materialized (
    select j.id, j.flow, j.step, j.is_first, j.kind, j.queue, j.priority, j.tenant, j.key, j.payload, j.options,
        case when j.sheaf = 0 then 0 else p.sheaf + j.sheaf end as sheaf
    from present p, json_to_recordset($3::text::json) j(id uuid, flow uuid, step int4, is_first boolean, kind text,
        queue text, priority int2, tenant text, key text, sheaf int8, payload text, options json)
    where j.flow in (select n.id from fresh n)
), body as (
    insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at, flow, step,
        place)
    select w.id, w.kind, w.queue, w.priority, w.tenant, w.key, w.sheaf, w.payload::json, w.options, p.now, w.flow,
        w.step, w.sheaf
    from present p, wanted w
    on conflict (id) do nothing
    returning 1
), opened as (
    insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
    select w.sheaf, min(w.queue), min(w.priority), min(p.now), min(w.kind), coalesce(min(w.tenant), ''),
        coalesce(min(w.key), ''), array_agg(w.id order by w.id)
    from present p, wanted w where w.is_first group by w.sheaf order by w.sheaf
)
select array(select n.id from fresh n),
    case when (select count(*) from body) <> (select count(*) from wanted) then tidemill.refuse(
        'id_taken', 'a job of the flow has the id of another job; make the flow''s jobs anew') end,
    (select tidemill.admit_flows(array_agg(f.queue), array_agg(f.jobs), min(p.now)) from present p, (
        select w.queue, count(*) as jobs from wanted w where w.is_first and w.flow = any ($4::uuid[]) group by w.queue
    ) f);

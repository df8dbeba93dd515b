-- Flows: jobs joined by edges.
--
-- flow          one row per flow. Whoever decides anything about it holds its lock.
-- flow_step     a named piece of its work: one job or many, what it waits for, how far it is.
-- flow_edge     what waits for what. `held`: what its expression came to.
-- flow_arrival  jobs that ended and are not counted yet. Appended in the transaction in which they end, without any lock,
--               so that a million children do not wait for one row; counted and deleted under the flow's lock. A settle
--               that gets this lock without waiting counts what went well itself (`carry_on`), and appends nothing.
-- flow_part     what a flow was built of, so that a part that is sent twice is added once.
--
-- A job of a flow has no sheaf row until its step is opened; the number of its sheaf is given when it is written. One
-- that waits for the clock or for its turn in a line (a step that is `slow`) has none: it is promoted when its step is.
-- job.place keeps that number: by it the jobs of a step are let go in turn, also when some went to other sheaves since.
-- Steps of one job that are opened together share sheaves instead: a claim takes a hundred jobs by one row, as it does
-- of those that are enqueued together.

create table tidemill.flow (
    id uuid primary key,
    name text not null,
    state int2 not null,
    jobs_open int8 not null default 0, -- kept if there is a cap
    at_once int4,
    created_at timestamptz not null,
    finished_at timestamptz,
    state_at timestamptz, -- since when it is in its state; not kept of one that has not turned back
    within_ms int8, -- how long it may take, from when it begins
    expires_at timestamptz, -- when it is called off, once it has begun
    retain_ms int8 not null,
    retain_failed_ms int8 not null,
    forget_at timestamptz,
    reason text,
    saga boolean not null,
    tend boolean not null default false -- a step is to be opened further, or jobs are to be called off
) with (fillfactor = 50);
create index flow_tend on tidemill.flow (id) where tend;
create index flow_expires on tidemill.flow (expires_at) where finished_at is null and expires_at is not null;
create index flow_forget on tidemill.flow (forget_at) where forget_at is not null;

create table tidemill.flow_step (
    flow uuid not null,
    number int4 not null,
    name text not null,
    state int2 not null,
    jobs int8 not null,
    "left" int8 not null,
    ok int8 not null default 0,
    failed int8 not null default 0,
    joined json not null, -- for how much it waits
    parents_left int4 not null,
    came int4 not null default 0,
    met int8 not null default 0,
    missed int8 not null default 0,
    alarms int4, -- of a step that comes after failures: how many of them may still happen
    refused boolean not null default false, -- an edge to it came to nothing
    guarded boolean not null default false, -- whatever it wants the success of has a branch for its failure
    lost int2 not null default 0, -- 1 skipped because something failed that nobody answers, 2 late, 3 called off
    slow boolean not null, -- its jobs wait for the clock or in a line
    early boolean not null, -- it may be decided before all that it comes after has ended
    call_off boolean not null default false, -- its jobs are to be called off
    call_offs int4 not null default 0, -- how often that was noted: who is late knows whether it is what he began with
    grown boolean not null default false, -- a running job added it: it answers no failure of what it comes after
    opened int8 not null default 0, -- the last sheaf that was let go, of a step that is opened bit by bit
    sheaf int8, -- the one in which its only job was let go together with others, instead of the job's own
    late_at timestamptz,
    late_look_at timestamptz, -- `late_at` while it waits
    started_at timestamptz,
    ended_at timestamptz,
    reason text,
    undo json, -- the job that undoes it
    undoes int4, -- the step that it undoes
    pivot boolean not null default false, -- once it is done, there is no way back
    superseded boolean not null default false, -- it was run again: the flow goes by its copy
    primary key (flow, number)
) with (fillfactor = 50);
-- No index knows a column that changes as a flow goes on: a row stays in its page, and its indexes as they are.
create index flow_step_late on tidemill.flow_step (late_look_at) where late_look_at is not null;

create table tidemill.flow_edge (
    flow uuid not null,
    from_step int4 not null,
    to_step int4 not null,
    on_end int2 not null,
    when_holds text,
    held boolean,
    primary key (flow, from_step, to_step)
);
create index flow_edge_to on tidemill.flow_edge (flow, to_step);

create table tidemill.flow_arrival (
    flow uuid not null,
    step int4 not null,
    ok int8 not null,
    failed int8 not null
);
create index flow_arrival_flow on tidemill.flow_arrival (flow);

create table tidemill.flow_part (
    flow uuid not null,
    key text not null,
    print text not null, -- by what it is told when its key comes again
    jobs int8 not null,
    primary key (flow, key)
);

alter table tidemill.flow set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table tidemill.flow_step set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table tidemill.flow_arrival set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

alter table tidemill.job add flow uuid, add step int4, add place int8;
create index job_flow on tidemill.job (flow, step, place, id) where flow is not null;
alter table tidemill.outcome add flow uuid, add step int4;

-- The number of the sheaf that holds a job if it waits.
create or replace function tidemill.sheaf_of(id uuid) returns int8 language sql stable as $$
    select greatest(j.sheaf, (select max(a.sheaf) from tidemill.attempt a where a.id = $1),
        (select s.sheaf from tidemill.flow_step s where s.flow = j.flow and s.number = j.step))
    from tidemill.job j where j.id = $1
$$;

-- Writes jobs of a flow, each unless it is there. `jobs` are objects with the columns of a job, `number` (of its step)
-- and `sheaf` (counted from 1; 0: none). Answers, per step, how many are new.
create function tidemill.write_flow_jobs(of_flow uuid, jobs json, at timestamptz)
    returns table (step int4, number int8) language sql as $$
    with first as materialized (select nextval('tidemill.sheaf') as seq),
    written as (
        insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at, flow, step,
            place)
        select j.id, j.kind, j.queue, j.priority, j.tenant, j.key,
            case when j.sheaf = 0 then 0 else f.seq + j.sheaf end, j.payload::json, j.options, at, of_flow, j.step,
            case when j.sheaf = 0 then 0 else f.seq + j.sheaf end
        from first f, json_to_recordset(write_flow_jobs.jobs) j(
            id uuid, kind text, queue text, priority int2, tenant text, key text, sheaf int8, payload text, options json,
            step int4)
        on conflict (id) do nothing
        returning step
    )
    select w.step, count(*) from written w group by w.step
$$;

-- Writes a flow, all of it or nothing; `false` when one of this id is there. `given` has the columns of the flow, `steps`
-- and `edges`; it is not begun.
create function tidemill.write_flow(given json, jobs json, at timestamptz) returns boolean language plpgsql as $$
declare
    of_flow uuid := (given ->> 'id')::uuid;
begin
    insert into tidemill.flow (id, name, state, at_once, created_at, within_ms, retain_ms, retain_failed_ms, saga)
    select of_flow, given ->> 'name', 0, (given ->> 'at_once')::int4, at, (given ->> 'finish_within_ms')::int8,
        (given ->> 'retain_ms')::int8,
        (given ->> 'retain_failed_ms')::int8, (given ->> 'saga')::boolean
    on conflict (id) do nothing;
    if not found then
        return false;
    end if;
    insert into tidemill.flow_step (flow, number, name, state, jobs, "left", joined, parents_left, slow, early, late_at,
        late_look_at, undo, pivot, alarms, guarded)
    select of_flow, s.number, s.name, 0, s.jobs, s.jobs, s.joined, s.parents, s.slow, s.early, l.late_at, l.late_at,
        s.undo, s.pivot, s.alarms, s.guarded
    from json_to_recordset(given -> 'steps') s(number int4, name text, jobs int8, joined json, parents int4,
        slow boolean, early boolean, undo json, pivot boolean, alarms int4, guarded boolean), lateral (
        select at + (s.joined ->> 'within_ms')::int8 * interval '1 ms' as late_at
    ) l;
    insert into tidemill.flow_edge (flow, from_step, to_step, on_end, when_holds)
    select of_flow, e.from_step, e.to_step, e.on_end, e.when_holds
    from json_to_recordset(given -> 'edges') e(from_step int4, to_step int4, on_end int2, when_holds text);
    if (select coalesce(sum(w.number), 0) from tidemill.write_flow_jobs(of_flow, jobs, at) w)
        <> json_array_length(jobs) then
        perform tidemill.refuse('id_taken', 'a job of the flow has the id of another job; make the flow''s jobs anew');
    end if;
    return true;
end $$;

-- The same in the caller's own transaction, with the steps that wait for nobody to be opened: whoever tends flows next
-- lets their jobs go.
create function tidemill.start_flow(given json, jobs json, at timestamptz) returns boolean language plpgsql as $$
declare
    of_flow uuid := (given ->> 'id')::uuid;
begin
    if not tidemill.write_flow(given, jobs, at) then
        return false;
    end if;
    update tidemill.flow f set state = 1, tend = true, expires_at = at + f.within_ms * interval '1 ms'
    where f.id = of_flow;
    update tidemill.flow_step s set state = 1, started_at = at where s.flow = of_flow and s.parents_left = 0;
    return true;
end $$;

-- Lets jobs of steps go, the next `room` of each at most (null: all of them). Answers their queues, how many of each
-- step were let go, and whether any are left.
create function tidemill.open_steps(flows uuid[], steps int4[], rooms int8[], at timestamptz)
    returns table (flow uuid, step int4, number int8, is_all boolean, queues text[]) language plpgsql as $$
declare
    one record;
    ids uuid[];
    last int8;
begin
    -- Sheaves of ordinary steps, all in one statement.
    return query
    with wanted as materialized (
        select w.flow, w.step, w.room, s.opened, s.is_whole
        from unnest(flows, steps, rooms) w(flow, step, room), lateral (
            select s.opened, s."left" = s.jobs and not exists (
                select from tidemill.flow_arrival a where a.flow = s.flow and a.step = s.number) as is_whole
            from tidemill.flow_step s
            where s.flow = w.flow and s.number = w.step and not s.slow limit 1
        ) s
    ), sheaf as materialized (
        select w.flow, w.step, j.*
        from wanted w, lateral (
            select j.place as sheaf, min(j.queue) as queue, min(j.priority) as priority, min(j.kind) as kind,
                min(j.tenant) as tenant, min(j.key) as key, array_agg(j.id order by j.id) filter (where
                    w.is_whole or not exists (select from tidemill.outcome o where o.id = j.id offset 0)) as ids,
                sum(count(*)) over (order by j.place) as running
            from (
                select j.* from tidemill.job j
                where j.flow = w.flow and j.step = w.step and j.place > w.opened
                order by j.place, j.id limit w.room + 1
            ) j
            group by j.place
        ) j
        where w.room is null or j.running <= w.room
    ), opened as (
        insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
        select s.sheaf, s.queue, s.priority, at, s.kind, coalesce(s.tenant, ''), coalesce(s.key, ''), s.ids
        from sheaf s where s.ids is not null order by s.sheaf
    ), moved as (
        update tidemill.flow_step s set opened = m.last
        from (select s.flow, s.step, max(s.sheaf) as last from sheaf s group by s.flow, s.step) m
        where s.flow = m.flow and s.number = m.step
    )
    select w.flow, w.step, coalesce(o.number, 0),
        not exists (
            select from tidemill.job j
            where j.flow = w.flow and j.step = w.step and j.place > coalesce(o.last, w.opened) limit 1),
        coalesce(o.queues, '{}')
    from wanted w left join (
        select s.flow, s.step, sum(coalesce(cardinality(s.ids), 0))::int8 as number, max(s.sheaf) as last,
            array_agg(distinct s.queue) as queues
        from sheaf s group by s.flow, s.step
    ) o on o.flow = w.flow and o.step = w.step;
    -- Jobs that wait for the clock or in a line, one by one: `opened` counts them.
    for one in
        select w.flow, w.step, w.room, s.opened
        from unnest(flows, steps, rooms) w(flow, step, room), lateral (
            select s.opened from tidemill.flow_step s where s.flow = w.flow and s.number = w.step and s.slow limit 1
        ) s
    loop
        select array_agg(j.id) into ids from (
            select j.id from tidemill.job j where j.flow = one.flow and j.step = one.step
            order by j.id offset one.opened limit one.room
        ) j;
        queues := array(
            select distinct tidemill.promote(j.id, coalesce(
                (j.options #>> '{flow,due,at}')::timestamptz,
                at + ((j.options #>> '{flow,due,in,secs}')::int8 * 1000000
                    + (j.options #>> '{flow,due,in,nanos}')::int8 / 1000) * interval '1 us',
                at), at)
            from unnest(ids) i(id) join tidemill.job j on j.id = i.id
            where not exists (select from tidemill.outcome o where o.id = i.id offset 0));
        number := (select count(*) from unnest(ids) i(id)
            where not exists (select from tidemill.outcome o where o.id = i.id offset 0));
        update tidemill.flow_step s set opened = s.opened + coalesce(cardinality(ids), 0)
        where s.flow = one.flow and s.number = one.step
        returning s.opened >= s.jobs into is_all;
        flow := one.flow;
        step := one.step;
        return next;
    end loop;
end $$;

-- Ends the jobs of steps that will not run. Their flow need not hear of it: the outcome names no step.
create function tidemill.skip_steps(flows uuid[], steps int4[], reasons text[], at timestamptz) returns void
    language sql as $$
    insert into tidemill.outcome (id, queue, state, attempt, lost, finished_at, keyed, error, flow)
    select j.id, j.queue, 5, 0, 0, at, false, 'skipped: ' || s.reason, j.flow
    from unnest(flows, steps, reasons) s(flow, step, reason)
    join tidemill.job j on j.flow = s.flow and j.step = s.step
    on conflict (id) do nothing
$$;

-- How a flow ends whose steps have all ended: 3, failed, if a step of it did, or was late, and nothing that comes after
-- that ran, but for steps that jobs of it added; what was run again does not count. Else 2, done. A step that was lost
-- behind another answers that if it is answered itself.
create function tidemill.end_of_flow(of_flow uuid) returns int2 language sql stable as $$
    with recursive answered as (
        select e.from_step as number from tidemill.flow_edge e, tidemill.flow_step t
        where e.flow = of_flow and t.flow = of_flow and t.number = e.to_step and t.state between 1 and 4
            and not t.grown and not t.superseded
        union
        select e.from_step from answered a, tidemill.flow_step l, tidemill.flow_edge e
        where l.flow = of_flow and l.number = a.number and l.lost = 1 and not l.superseded
            and e.flow = of_flow and e.to_step = l.number
    )
    select case when exists (
        select from tidemill.flow_step s
        where s.flow = of_flow and (s.state = 4 or s.lost = 2) and not s.superseded
            and s.number not in (select a.number from answered a)
    ) then 3::int2 else 2::int2 end
$$;

-- Counts jobs of flows that are done, `oks` of a step each, and carries the flows on: the rule of core's
-- `flow/board.rs` for the plain case, in the transaction that ends the jobs. Waits for nobody: a flow that is in other
-- hands, and whatever is not plain, is left to those who carry flows on by the rule itself (`others`, with an arrival
-- for each). Plain is a flow that runs, is no saga and has no cap; a step of which nothing failed, whose edges wish for
-- success or any end, without an expression; and behind it steps that nothing decides early. What opens has jobs,
-- at most 1,000, none of them called off, and none that waits for the clock or in a line.
-- Answers also the queues in which jobs wait now, and the flows that are over.
create function tidemill.carry_on(
    flows uuid[], steps int4[], oks int8[], at timestamptz, out others uuid[], out queues text[], out over uuid[]
) language plpgsql as $$
declare
    free_flows uuid[];
    free_steps int4[];
    free_oks int8[];
    counted_flows uuid[];
    counted_steps int4[];
    ended uuid[];
begin
    select array_agg(a.flow), array_agg(a.step), array_agg(a.ok) into free_flows, free_steps, free_oks
    from unnest(flows, steps, oks) a(flow, step, ok), lateral (
        select from tidemill.flow f
        where f.id = a.flow and f.state = 1 and not f.saga and f.at_once is null
        for update skip locked
    ) f;
    -- A statement of its own: it sees what those did who had the locks before. Under these, rows stay where they are
    -- found (`ctid`), and are not looked for twice.
    with arrival as materialized (
        select a.flow, a.step, a.ok, s.spot, s."left" = a.ok as ends,
            s.state in (1, 2) and s.failed = 0 and s."left" >= a.ok as is_plain
        from unnest(free_flows, free_steps, free_oks) a(flow, step, ok), lateral (
            select s.ctid as spot, s.state, s."left", s.failed from tidemill.flow_step s
            where s.flow = a.flow and s.number = a.step limit 1
        ) s
    ), edge as materialized (
        select a.flow, e.to_step, t.spot, a.ok, a.ends, t.parents_left,
            e.on_end <> 1 and e.when_holds is null and not t.early as is_plain,
            t.jobs, not t.slow and t.jobs between 1 and 1000 and t."left" = t.jobs as may_open
        from arrival a, lateral (
            select e.to_step, e.on_end, e.when_holds from tidemill.flow_edge e
            where e.flow = a.flow and e.from_step = a.step
        ) e, lateral (
            select t.ctid as spot, t.state, t.parents_left, t.jobs, t."left", t.slow, t.early from tidemill.flow_step t
            where t.flow = a.flow and t.number = e.to_step limit 1
        ) t
        where t.state = 0
    ), target as materialized (
        select e.flow, e.to_step, e.spot, min(e.jobs) as jobs, sum(e.ok)::int8 as ok,
            count(*) filter (where e.ends) as ended,
            min(e.parents_left) = count(*) filter (where e.ends) as opens,
            bool_and(e.is_plain) and (min(e.parents_left) > count(*) filter (where e.ends) or bool_and(e.may_open)
                and not exists (
                    select from tidemill.flow_arrival a where a.flow = e.flow and a.step = e.to_step)) as is_plain
        from edge e group by e.flow, e.to_step, e.spot
    ), other as materialized (
        select a.flow from arrival a where not a.is_plain
        union select t.flow from target t where not t.is_plain
    ), let_go as materialized (
        -- Lone jobs that are alike share sheaves of up to a hundred.
        select l.*, l.first + dense_rank() over (order by l.queue, l.priority, l.kind, l.tenant, l.key, l.part) as sheaf
        from (
            select t.flow, t.to_step, t.spot, t.jobs, t.ok, t.ended, t.opens, n.first, j.*,
                (row_number() over () - 1) / 100 as part
            from (select nextval('tidemill.sheaf') as first) n, target t left join lateral (
                select j.id, j.queue, j.priority, j.kind, coalesce(j.tenant, '') as tenant, coalesce(j.key, '') as key
                from tidemill.job j
                where j.flow = t.flow and j.step = t.to_step and t.opens and t.jobs = 1 limit 1
            ) j on true
            where t.flow not in (select o.flow from other o)
        ) l
    ), counted as (
        update tidemill.flow_step s
        set "left" = s."left" - a.ok, ok = s.ok + a.ok, state = case when a.ends then 3 else s.state end,
            call_off = s.call_off and not a.ends, ended_at = case when a.ends then carry_on.at end
        from arrival a
        where s.ctid = a.spot and a.flow not in (select o.flow from other o)
        returning s.flow, s.number
    ), heard as (
        update tidemill.flow_step s
        set met = s.met + t.ok, parents_left = s.parents_left - t.ended, came = s.came + t.ended,
            state = case when t.opens then 2 else 0 end,
            started_at = case when t.opens then carry_on.at end,
            late_look_at = case when not t.opens then s.late_look_at end,
            sheaf = case when t.id is not null then t.sheaf end
        from let_go t
        where s.ctid = t.spot
    ), opened as (
        insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
        select t.sheaf, min(t.queue), min(t.priority), carry_on.at, min(t.kind), min(t.tenant), min(t.key),
            array_agg(t.id)
        from let_go t where t.id is not null group by t.sheaf
        union all
        select j.place, j.queue, j.priority, carry_on.at, j.kind, coalesce(j.tenant, ''), coalesce(j.key, ''), j.ids
        from let_go t, lateral (
            select j.place, min(j.queue) as queue, min(j.priority) as priority, min(j.kind) as kind,
                min(j.tenant) as tenant, min(j.key) as key, array_agg(j.id) as ids
            from (
                select j.* from tidemill.job j where j.flow = t.flow and j.step = t.to_step order by j.place, j.id
            ) j
            group by j.place
        ) j
        where t.opens and t.jobs > 1
        returning queue
    )
    select (select array_agg(c.flow) from counted c), (select array_agg(c.number) from counted c),
        (select array_agg(distinct o.queue) from opened o),
        array(select distinct a.flow from arrival a
            where a.ends and a.flow not in (select t.flow from target t) and a.flow not in (select o.flow from other o))
    into counted_flows, counted_steps, queues, ended;
    if cardinality(ended) > 0 then
        with ends as (
            update tidemill.flow f
            set state = e.state, finished_at = carry_on.at, forget_at = carry_on.at
                + case when e.state = 3 then f.retain_failed_ms else f.retain_ms end * interval '1 ms'
            from unnest(ended) i(id), lateral (
                select min(s.state) > 2 as is_over,
                    -- A call costs as much as all the rest: only where it matters.
                    case when bool_or(s.state = 4 or s.lost = 2) then tidemill.end_of_flow(i.id) else 2::int2 end as state
                from tidemill.flow_step s where s.flow = i.id
            ) e
            where f.id = i.id and e.is_over
            returning f.id
        )
        select array_agg(e.id) into over from ends e;
    end if;
    if cardinality(flows) > coalesce(cardinality(counted_flows), 0) then
        with rest as (
            insert into tidemill.flow_arrival (flow, step, ok, failed)
            select a.flow, a.step, a.ok, 0 from unnest(flows, steps, oks) a(flow, step, ok)
            where not exists (
                select from unnest(counted_flows, counted_steps) c(flow, step)
                where c.flow = a.flow and c.step = a.step)
            returning flow
        )
        select array_agg(distinct r.flow) into others from rest r;
    end if;
end $$;

-- Flows: jobs joined by edges.
--
-- flow          one row per flow.
-- flow_step     a named piece of its work: one job or many, what it waits for, how far it is.
-- flow_edge     what waits for what. `held`: what its expression came to.
-- flow_arrival  jobs that plain SQL dropped from a full queue and that are not counted yet; within a second they are.
--               All others are counted in the transaction in which they end.
-- flow_part     what a flow was built of, so that a part that is sent twice is added once.
--
-- A job of a flow has no ready row until its step is opened. Then that stands where the step's `started_at` says, unless
-- the job was let go on its own and its `run_at` says where.

create table tidemill_flow (
    id blob not null primary key,
    name text not null,
    state integer not null,
    jobs_open integer not null default 0, -- kept if there is a cap
    at_once integer,
    created_at integer not null,
    finished_at integer,
    state_at integer, -- since when it is in its state; not kept of one that has not turned back
    within_ms integer, -- how long it may take, from when it begins
    expires_at integer, -- when it is called off, once it has begun
    retain_ms integer not null,
    retain_failed_ms integer not null,
    forget_at integer,
    reason text,
    saga integer not null,
    tend integer not null default 0 -- a step is to be opened further, or jobs are to be called off
) without rowid;
create index tidemill_flow_tend on tidemill_flow (id) where tend;
create index tidemill_flow_expires on tidemill_flow (expires_at)
where finished_at is null and expires_at is not null;
create index tidemill_flow_forget on tidemill_flow (forget_at) where forget_at is not null;

create table tidemill_flow_step (
    flow blob not null,
    number integer not null,
    name text not null,
    state integer not null,
    jobs integer not null,
    left integer not null,
    ok integer not null default 0,
    failed integer not null default 0,
    joined text not null, -- for how much it waits
    parents_left integer not null,
    came integer not null default 0,
    met integer not null default 0,
    missed integer not null default 0,
    alarms integer, -- of a step that comes after failures: how many of them may still happen
    refused integer not null default 0, -- an edge to it came to nothing
    guarded integer not null default 0, -- whatever it wants the success of has a branch for its failure
    lost integer not null default 0, -- 1 skipped because something failed that nobody answers, 2 late, 3 called off
    slow integer not null default 0, -- jobs of it wait for the clock or in a line
    early integer not null default 0, -- it may be decided before all that it comes after has ended
    call_off integer not null default 0, -- its jobs are to be called off
    grown integer not null default 0, -- a running job added it: it answers no failure of what it comes after
    opened blob not null default x'', -- the last job that was let go, of a step that is opened bit by bit
    late_at integer,
    started_at integer,
    ended_at integer,
    reason text,
    undo text, -- the job that undoes it
    undoes integer, -- the step that it undoes
    pivot integer not null default 0, -- once it is done, there is no way back
    superseded integer not null default 0, -- it was run again: the flow goes by its copy
    primary key (flow, number)
) without rowid;
create index tidemill_flow_step_late on tidemill_flow_step (late_at) where state = 0 and late_at is not null;

create table tidemill_flow_edge (
    flow blob not null,
    from_step integer not null,
    to_step integer not null,
    on_end integer not null,
    when_holds text,
    held integer,
    primary key (flow, from_step, to_step)
) without rowid;
create index tidemill_flow_edge_to on tidemill_flow_edge (flow, to_step);

create table tidemill_flow_arrival (
    number integer primary key,
    flow blob not null,
    step integer not null,
    ok integer not null,
    failed integer not null
);
create index tidemill_flow_arrival_flow on tidemill_flow_arrival (flow);

create table tidemill_flow_part (
    flow blob not null,
    key text not null,
    print text not null, -- by what it is told when its key comes again
    jobs integer not null,
    primary key (flow, key)
) without rowid;

alter table tidemill_job add column flow blob;
alter table tidemill_job add column step integer;
create index tidemill_job_flow on tidemill_job (flow, step, id) where flow is not null;
alter table tidemill_outcome add column flow blob;
alter table tidemill_outcome add column step integer; -- null: it was skipped with its step

-- Writes a flow in the caller's own transaction, unless it is there, with the steps that wait for nobody to be opened:
-- whoever tends flows next lets their jobs go. While it is written, `tend` is 2.
create view tidemill_start_flow as select null as flow, null as jobs, null as now_us where 0;
create trigger tidemill_start_flow_insert instead of insert on tidemill_start_flow
begin
    insert or ignore into tidemill_flow (
        id, name, state, at_once, created_at, within_ms, expires_at, retain_ms, retain_failed_ms, saga, tend
    )
    values (
        unhex(replace(new.flow ->> 'id', '-', '')), new.flow ->> 'name', 1, new.flow ->> 'at_once', new.now_us,
        new.flow ->> 'finish_within_ms', new.now_us + 1000 * (new.flow ->> 'finish_within_ms'),
        new.flow ->> 'retain_ms', new.flow ->> 'retain_failed_ms', new.flow ->> 'saga', 2
    );
    insert into tidemill_flow_step (
        flow, number, name, state, jobs, left, joined, parents_left, slow, early, late_at, started_at, undo, pivot,
        alarms, guarded
    )
    select
        flow.id, step.value ->> 'number', step.value ->> 'name', (step.value ->> 'parents') = 0,
        step.value ->> 'jobs', step.value ->> 'jobs', step.value ->> 'joined', step.value ->> 'parents',
        step.value ->> 'slow', step.value ->> 'early', new.now_us + 1000 * (step.value ->> '$.joined.within_ms'),
        iif((step.value ->> 'parents') = 0, new.now_us, null), step.value ->> 'undo', step.value ->> 'pivot',
        step.value ->> 'alarms', step.value ->> 'guarded'
    from tidemill_flow as flow, json_each(new.flow, '$.steps') as step
    where flow.id = unhex(replace(new.flow ->> 'id', '-', '')) and flow.tend = 2;
    insert into tidemill_flow_edge (flow, from_step, to_step, on_end, when_holds)
    select
        flow.id, edge.value ->> 'from_step', edge.value ->> 'to_step', edge.value ->> 'on_end',
        edge.value ->> 'when_holds'
    from tidemill_flow as flow, json_each(new.flow, '$.edges') as edge
    where flow.id = unhex(replace(new.flow ->> 'id', '-', '')) and flow.tend = 2;
    insert or ignore into tidemill_job (
        id, kind, queue, priority, tenant, key, run_at, payload, options, created_at, flow, step
    )
    select
        unhex(replace(job.value ->> 'id', '-', '')), job.value ->> 'kind', job.value ->> 'queue',
        job.value ->> 'priority', job.value ->> 'tenant', job.value ->> 'key', 0, job.value ->> 'payload',
        job.value ->> 'options', new.now_us, flow.id, job.value ->> 'step'
    from tidemill_flow as flow, json_each(new.jobs) as job
    where flow.id = unhex(replace(new.flow ->> 'id', '-', '')) and flow.tend = 2;
    select raise(abort, 'tidemill: id_taken: a job of the flow has the id of another job; make the flow''s jobs anew')
    from tidemill_flow as flow
    where flow.id = unhex(replace(new.flow ->> 'id', '-', '')) and flow.tend = 2 and json_array_length(new.jobs) <> (
        select count(*) from tidemill_job as job where job.flow = flow.id
    );
    update tidemill_flow set tend = 1 where id = unhex(replace(new.flow ->> 'id', '-', '')) and tend = 2;
end;

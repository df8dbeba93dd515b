-- Flows: jobs joined by edges.
--
-- flow          one row per flow.
-- flow_step     a named piece of its work: one job or many, what it waits for, how far it is.
-- flow_edge     what waits for what. `held`: what its expression came to.
-- flow_arrival  jobs that ended and are not counted yet. Counted in the transaction in which they end, except of
--               those that plain SQL drops: these within a second.
--
-- A job of a flow has no ready row until its step is opened.

create table tidemill_flow (
    id blob not null primary key,
    name text not null,
    state integer not null,
    steps_left integer not null,
    jobs_open integer not null default 0,
    at_once integer,
    created_at integer not null,
    finished_at integer,
    expires_at integer,
    retain_ms integer not null,
    retain_failed_ms integer not null,
    forget_at integer,
    reason text,
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
    call_off integer not null default 0, -- its jobs are to be called off
    opened blob not null default x'', -- the last job that was let go
    late_at integer,
    started_at integer,
    ended_at integer,
    reason text,
    primary key (flow, number)
) without rowid;
create unique index tidemill_flow_step_name on tidemill_flow_step (flow, name);
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

alter table tidemill_job add column flow blob;
alter table tidemill_job add column step integer;
create index tidemill_job_flow on tidemill_job (flow, step, id) where flow is not null;
alter table tidemill_outcome add column flow blob;
alter table tidemill_outcome add column step integer;
create index tidemill_outcome_flow on tidemill_outcome (flow, step, id) where flow is not null;

-- Whatever ends a job of a flow, its flow hears of it.
create trigger tidemill_outcome_arrival after insert on tidemill_outcome when new.step is not null
begin
    insert into tidemill_flow_arrival (flow, step, ok, failed)
    values (new.flow, new.step, new.state = 4, new.state <> 4);
end;

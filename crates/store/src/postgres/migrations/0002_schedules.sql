-- Schedules: rules of time, and what became of their slots.

create table tidemill.schedule (
    name text collate "C" primary key,
    owner text collate "C" not null,
    version int8 not null, -- grows with every change; a firing is none
    paused boolean not null,
    definition json not null,
    next_at timestamptz, -- the slot it waits for; none when it is over
    last_slot timestamptz,
    last_job uuid,
    forgot_from timestamptz, -- the first slot that has fired of which the history knows nothing any more
    forgot_until timestamptz, -- and the latest
    forgot_filled_from timestamptz, -- the same of those that were backfilled
    forgot_filled_until timestamptz,
    made_at timestamptz not null,
    changed_at timestamptz not null
);
create index schedule_next on tidemill.schedule (next_at) where not paused and next_at is not null;

-- The history, latest number last. how: 0 slot, 1 run now, 2 backfill, 3 again.
-- what: 0 fired, 1 joined, 2 skipped, 3 missed.
create table tidemill.schedule_fire (
    number int8 generated always as identity primary key,
    name text collate "C" not null,
    slot timestamptz not null,
    until timestamptz, -- the last of several that were missed
    slots int8 not null,
    what int2 not null,
    how int2 not null,
    job uuid,
    jobs int4 not null,
    at timestamptz not null
);
create index schedule_fire_latest on tidemill.schedule_fire (name, number);
-- A slot fires once.
create unique index schedule_fire_once on tidemill.schedule_fire (name, slot)
where what = 0 and (how = 0 or how = 2);

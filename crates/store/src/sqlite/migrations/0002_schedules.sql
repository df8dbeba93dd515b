-- Schedules: rules of time, and what became of their slots.

create table tidemill_schedule (
    name text not null primary key,
    owner text not null,
    version integer not null, -- grows with every change; a firing is none
    paused integer not null,
    definition text not null,
    next_at integer, -- the slot it waits for; none when it is over
    last_slot integer,
    last_job blob,
    forgot_from integer, -- the first slot that has fired of which the history knows nothing any more
    forgot_until integer, -- and the latest
    forgot_filled_from integer, -- the same of those that were backfilled
    forgot_filled_until integer,
    made_at integer not null,
    changed_at integer not null
) without rowid;
create index tidemill_schedule_next on tidemill_schedule (next_at)
where paused = 0 and next_at is not null;

-- The history, latest number last. how: 0 slot, 1 run now, 2 backfill, 3 again.
-- what: 0 fired, 1 joined, 2 skipped, 3 missed.
create table tidemill_schedule_fire (
    number integer primary key,
    name text not null,
    slot integer not null,
    until integer, -- the last of several that were missed
    slots integer not null,
    what integer not null,
    how integer not null,
    job blob,
    jobs integer not null,
    at integer not null
);
create index tidemill_schedule_fire_latest on tidemill_schedule_fire (name, number);
-- A slot fires once.
create unique index tidemill_schedule_fire_once on tidemill_schedule_fire (name, slot)
where what = 0 and (how = 0 or how = 2);

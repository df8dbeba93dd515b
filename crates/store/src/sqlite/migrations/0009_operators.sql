-- What operators do to many dead letters at once, and the record of who did what.

-- A plan: an act and the letters it is for, as they were when it was made.
create table tidemill_plan (
    id blob not null primary key,
    stage integer not null default 0, -- made, applying, applied, undoing, undone
    act text not null, -- as JSON
    filter text not null, -- as JSON
    groups text not null, -- what was shown of its letters, as JSON
    by text not null,
    why text not null,
    letters integer not null,
    made_at integer not null,
    expires_at integer not null, -- until when it may be applied
    kept_until integer not null,
    applied_at integer,
    undone_at integer,
    reached blob not null default x'', -- the last letter of the last batch
    done integer not null default 0,
    passed integer not null default 0,
    undone integer not null default 0,
    stayed integer not null default 0
) without rowid;

create table tidemill_plan_letter (
    plan blob not null,
    id blob not null,
    died_at integer not null,
    triage integer not null,
    archived integer not null,
    redrives integer not null,
    fate integer not null default 0, -- waits, done, passed, undone, stays
    primary key (plan, id)
) without rowid;

-- Who did what to what. Written before it is done, and completed with what became of it.
create table tidemill_audit (
    id blob not null primary key,
    at integer not null,
    who text not null,
    credential blob,
    act text not null,
    target_kind text not null,
    target text not null,
    detail text not null,
    ended_at integer,
    result text, -- `ok`, or the code of the refusal; none while it is under way, and where nobody could say
    is_refused integer not null default 0 -- nothing was done; of these so many are kept, and of the others so many
) without rowid;
create index tidemill_audit_refused on tidemill_audit (id) where is_refused;

-- What operators do to many dead letters at once, and the record of who did what.

-- A plan: an act and the letters it is for, as they were when it was made.
create table tidemill.plan (
    id uuid primary key,
    stage int2 not null default 0, -- made, applying, applied, undoing, undone
    act json not null,
    filter json not null,
    groups json not null, -- what was shown of its letters
    by_whom text not null,
    why text not null,
    letters int8 not null,
    made_at timestamptz not null,
    expires_at timestamptz not null, -- until when it may be applied
    kept_until timestamptz not null,
    applied_at timestamptz,
    undone_at timestamptz,
    reached uuid not null default '00000000-0000-0000-0000-000000000000', -- the last letter of the last batch
    done int8 not null default 0,
    passed int8 not null default 0,
    undone int8 not null default 0,
    stayed int8 not null default 0
);

create table tidemill.plan_letter (
    plan uuid not null,
    id uuid not null,
    died_at timestamptz not null,
    triage int2 not null,
    archived boolean not null,
    redrives int2 not null,
    fate int2 not null default 0, -- waits, done, passed, undone, stays
    primary key (plan, id)
);

-- Who did what to what. Written before it is done, and completed with what became of it.
create table tidemill.audit (
    id uuid primary key,
    at timestamptz not null,
    who text not null,
    credential uuid,
    act text not null,
    target_kind text not null,
    target text not null,
    detail text not null,
    ended_at timestamptz,
    result text, -- `ok`, or the code of the refusal; none while it is under way, and where nobody could say
    is_refused boolean not null default false -- nothing was done; of these so many are kept, and of the others so many
);
create index audit_refused on tidemill.audit (id) where is_refused;

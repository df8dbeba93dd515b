-- The marks of effects, in a database of the caller's: one row per effect that was committed with what it came to.
create table if not exists tidemill_effect (
    key text collate "C" primary key, -- the idempotency key of the job, and the name of the effect if it has one
    job uuid not null,
    output json, -- what the effect came to; none while its transaction is under way
    recorded_at timestamptz not null default now()
)

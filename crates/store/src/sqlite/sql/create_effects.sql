-- The marks of effects, in a database of the caller's: one row per effect that was committed with what it came to.
create table if not exists tidemill_effect (
    key text not null primary key, -- the idempotency key of the job, and the name of the effect if it has one
    job text not null,
    output text, -- what the effect came to, as JSON; none while its transaction is under way
    recorded_at integer not null -- milliseconds since 1970
) without rowid

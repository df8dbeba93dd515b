-- Webhooks: who is told of ended jobs. What tells them is a job, written by whoever ends the other (webhooks.rs).

create table tidemill_webhook (
    id blob not null primary key,
    name text not null unique,
    webhook text not null, -- as JSON: where to, and of what
    secrets text not null, -- as JSON: what is signed with
    version integer not null,
    created_at integer not null,
    changed_at integer not null
) without rowid;

-- At most one row: which alerts webhooks were told of (core's `alert/book.rs`).
create table tidemill_alert_book (
    is_it integer not null primary key check (is_it = 1),
    version integer not null,
    book text not null -- as JSON
);

-- Runs: jobs that keep a journal.
--
-- tidemill_run      one row per job that has a journal or mail. `wake_at`: it waits, and the piece of mail of this number
--                   wakes it, unless it went on by itself: then an attempt came after that of `wake_token`.
-- tidemill_journal  what it did, only added to; each write proves its lease.
-- tidemill_mail     what came for it: signals, and ends of its children.
-- tidemill_run_act  what people did with it: who, why and when.
-- tidemill_debt     runs that ended otherwise than well, whose undos and children are to be seen to.

create table tidemill_run (
    job blob not null primary key,
    began_at integer not null,
    version text not null default '',
    mail integer not null default 0, -- the number of the last piece
    unread integer not null default 0, -- signals that nobody has taken
    unread_bytes integer not null default 0,
    wake_at integer,
    wake_token integer,
    waits text,
    state text,
    parked text, -- why it does not go on before somebody has seen to it
    paused integer not null default 0,
    owes integer not null default 0,
    undone integer not null default 0, -- what it did is being undone, or is: it cannot go on
    journal_entries_max integer -- how many entries its journal may have, if an operator has set that
) without rowid;
-- Few among many: whoever starts or lists asks for them.
create index tidemill_run_parked on tidemill_run (job) where parked is not null;

create table tidemill_journal (
    job blob not null,
    number integer not null,
    at integer not null,
    entry text not null,
    value text, -- what a step returned, if it is large: read when it is asked for
    primary key (job, number)
) without rowid;

create table tidemill_mail (
    job blob not null,
    number integer not null,
    at integer not null,
    sent text, -- what makes two of them the same
    content text not null,
    bytes integer, -- how many it counts for while nobody has taken it; only signals count
    answer text,
    primary key (job, number)
) without rowid;
create unique index tidemill_mail_sent on tidemill_mail (job, sent) where sent is not null;

create table tidemill_run_act (
    number integer primary key,
    job blob not null,
    at integer not null,
    act text not null,
    step text,
    by text not null,
    why text not null,
    other blob, -- the run it was forked into, or from
    was text, -- what the step had ended with before
    became text -- and since
);
create index tidemill_run_act_job on tidemill_run_act (job);

-- What is kept under a queue, a tenant and a key from one job of that line to the next.
create table tidemill_object (
    queue text not null,
    tenant text not null, -- '' if its jobs have none
    key text not null,
    changed_at integer not null,
    state text not null,
    primary key (queue, tenant, key)
) without rowid;

create table tidemill_debt (
    number integer primary key autoincrement, -- like no other before it
    job blob not null unique
);

-- Jobs that newer ones never push out: they take turns, a run waits for their end, or they are runs, whose undos and
-- children would be forgotten.
drop view tidemill_stays;
create view tidemill_stays as
select id from tidemill_job
where key is not null and json_extract(options, '$.ordered') is not null
    or json_extract(options, '$.parent') is not null
    or exists (select 1 from tidemill_run where job = tidemill_job.id);

-- Runs that have begun, or that somebody has stopped: each is what it was started as, whatever comes under its key, and
-- goes on when it is told to. Of one that continues anew the journal is empty.
create view tidemill_under_way as
select id from tidemill_job
where exists (select 1 from tidemill_journal where job = tidemill_job.id)
    or exists (
        select 1 from tidemill_run
        where job = tidemill_job.id
            and (paused or parked is not null or json_extract(tidemill_job.options, '$.turn') is not null)
    );

-- Jobs of which an attempt has begun since they were enqueued, or replayed. One that waits, or was put off, has begun
-- though none is spent. Of one whose worker was lost nobody knows, but for the journal.
create view tidemill_begun as
select id
from (
    select id,
        ifnull(cast(unixepoch(json_extract(options, '$.replayed_at'), 'subsec') * 1000 as integer) * 1000, -1) as since
    from tidemill_job
) as job
where exists (
        select 1 from tidemill_attempt as attempt
        where attempt.id = job.id and attempt.attempt > 0 and attempt.started_at is not null
            and attempt.class is not 'lost' and attempt.ended_at > job.since
    )
    or exists (select 1 from tidemill_journal as entry where entry.job = job.id and entry.at > job.since);

-- Runs: jobs that keep a journal.
--
-- run      one row per job that has a journal or mail. Whoever puts mail into its box, or lets it wait, holds its lock.
--          `wake_at`: it waits, and the piece of mail of this number wakes it, unless it went on by itself: then an
--          attempt came after that of `wake_token`.
-- journal  what it did, only added to; each write proves its lease.
-- mail     what came for it: signals, and ends of its children. Numbered under the run's lock.
-- run_act  what people did with it: who, why and when.
-- debt     runs that ended otherwise than well, whose undos and children are to be seen to.

create table tidemill.run (
    job uuid primary key,
    began_at timestamptz not null,
    version text not null default '',
    mail int8 not null default 0, -- the number of the last piece
    unread int8 not null default 0, -- signals that nobody has taken
    unread_bytes int8 not null default 0,
    wake_at int8,
    wake_token int8,
    waits json,
    state json,
    parked json, -- why it does not go on before somebody has seen to it
    paused boolean not null default false,
    owes boolean not null default false,
    undone boolean not null default false, -- what it did is being undone, or is: it cannot go on
    journal_entries_max int4 -- how many entries its journal may have, if an operator has set that
) with (fillfactor = 50);
-- Few among many: whoever starts or lists asks for them.
create index run_parked on tidemill.run (job) where parked is not null;

create table tidemill.journal (
    job uuid not null,
    number int4 not null,
    at timestamptz not null,
    entry json not null,
    value text, -- what a step returned, if it is large: read when it is asked for
    primary key (job, number)
);

create table tidemill.mail (
    job uuid not null,
    number int8 not null,
    at timestamptz not null,
    sent text, -- what makes two of them the same
    content json not null,
    bytes int8, -- how many it counts for while nobody has taken it; only signals count
    answer json,
    primary key (job, number)
);
create unique index mail_sent on tidemill.mail (job, sent) where sent is not null;

create table tidemill.run_act (
    number int8 generated always as identity primary key,
    id uuid not null unique, -- sent again, an act is done once
    job uuid not null,
    at timestamptz not null,
    act text not null,
    step text,
    by_whom text not null,
    why text not null,
    other uuid, -- the run it was forked into, or from
    was json, -- what the step had ended with before
    became json -- and since
);
create index run_act_job on tidemill.run_act (job);

-- What is kept under a queue, a tenant and a key from one job of that line to the next.
create table tidemill.object (
    queue text collate "C" not null,
    tenant text collate "C" not null, -- '' if its jobs have none
    key text collate "C" not null,
    changed_at timestamptz not null,
    state json not null,
    primary key (queue, tenant, key)
);

create table tidemill.debt (
    job uuid primary key,
    number int8 not null unique generated always as identity -- like no other before it
);

-- Whether newer jobs never push this one out: it takes turns, a run waits for its end, or it is a run, whose undos and
-- children would be forgotten.
create or replace function tidemill.stays(body tidemill.job) returns boolean language sql stable as $$
    select tidemill.is_ordered($1) or ($1).options ->> 'parent' is not null
        or exists (select from tidemill.run r where r.job = ($1).id)
$$;

-- Whether a job is a run that has begun, or that somebody has stopped: it is what it was started as, whatever comes under
-- its key, and goes on when it is told to. Of one that continues anew the journal is empty.
create function tidemill.is_under_way(id uuid) returns boolean language plpgsql stable as $$
begin
    return exists (select from tidemill.journal e where e.job = is_under_way.id)
        or exists (
            select from tidemill.run r join tidemill.job j on j.id = r.job
            where r.job = is_under_way.id and (r.paused or r.parked is not null or j.options ->> 'turn' is not null));
end $$;

-- Whether an attempt of this job has begun since it was enqueued, or replayed. One that waits, or was put off, has begun
-- though none is spent. Of one whose worker was lost nobody knows, but for the journal.
create function tidemill.has_begun(of_id uuid, options json) returns boolean language plpgsql stable as $$
declare
    since timestamptz := coalesce((options ->> 'replayed_at')::timestamptz, '-infinity');
begin
    return exists (
        select from tidemill.attempt a
        where a.id = of_id and a.attempt > 0 and a.started_at is not null and a.class is distinct from 'lost'
            and a.ended_at > since
    ) or exists (select from tidemill.journal e where e.job = of_id and e.at > since);
end $$;

-- Locks runs, in order, each by a look of its own; those that are not there are made, for jobs that are.
create function tidemill.lock_runs(jobs uuid[], at timestamptz) returns setof tidemill.run language plpgsql as $$
begin
    insert into tidemill.run (job, began_at)
    select distinct j, lock_runs.at from unnest(lock_runs.jobs) j
    where exists (select from tidemill.job b where b.id = j) order by 1
    on conflict (job) do nothing;
    return query
    select r.* from (select distinct j from unnest(lock_runs.jobs) j order by 1) j, lateral (
        select * from tidemill.run r where r.job = j.j for update
    ) r;
end $$;

-- Lets those of these runs, which are locked, go on that wait for mail they have; answers their queues.
create function tidemill.wake_runs(jobs uuid[], at timestamptz) returns setof text language plpgsql as $$
declare
    woken uuid;
begin
    for woken in
        update tidemill.run r set wake_at = null
        where r.job = any (wake_runs.jobs) and r.wake_at <= r.mail and r.parked is null and not r.paused
            and r.wake_token = (select max(a.token) from tidemill.attempt a where a.id = r.job)
        returning r.job
    loop
        return next tidemill.run_now(woken, wake_runs.at);
    end loop;
end $$;

-- Puts mail into the boxes of runs, in this order, each piece once, and wakes those that waited for it. Signals, which
-- are those that have bytes, are refused where a box has no room for them. Answers the queues of those that wake, and
-- the places of those that are refused.
create function tidemill.deliver(jobs uuid[], sents text[], contents text[], bytes int8[], unread_max int8,
    unread_bytes_max int8, at timestamptz) returns table (queue text, refused int8) language plpgsql as $$
begin
    perform tidemill.lock_runs(deliver.jobs, deliver.at);
    -- Only now: whoever held the locks before us is visible to this statement.
    return query
    with new as (
        select i.job, i.place, i.sent, i.content, i.bytes
        from unnest(deliver.jobs, deliver.sents, deliver.contents, deliver.bytes) with ordinality
            i(job, sent, content, bytes, place)
        where i.sent is null or not exists (
                select from tidemill.mail m where m.job = i.job and m.sent = i.sent)
            and not exists (
                select from unnest(deliver.jobs, deliver.sents) with ordinality e(job, sent, place)
                where e.job = i.job and e.sent = i.sent and e.place < i.place)
    ), weighed as materialized (
        select n.job, n.place, n.sent, n.content, n.bytes, r.mail, n.bytes is not null and (
            r.unread + count(n.bytes) over upto > deliver.unread_max
            or r.unread_bytes + sum(n.bytes) over upto > deliver.unread_bytes_max) as is_over
        from new n join lateral (
            select r.mail, r.unread, r.unread_bytes from tidemill.run r where r.job = n.job limit 1
        ) r on true
        window upto as (partition by n.job order by n.place)
    ), put as (
        insert into tidemill.mail as m (job, number, at, sent, content, bytes)
        select w.job, w.mail + row_number() over (partition by w.job order by w.place), deliver.at, w.sent,
            w.content::json, w.bytes
        from weighed w where not w.is_over
        returning m.job, m.bytes
    ), counted as (
        update tidemill.run r set mail = r.mail + p.pieces, unread = r.unread + p.signals,
            unread_bytes = r.unread_bytes + p.bytes
        from (
            select p.job, count(*) as pieces, count(p.bytes) as signals, coalesce(sum(p.bytes), 0)::int8 as bytes
            from put p group by p.job
        ) p
        where r.job = p.job
    )
    select null::text, w.place from weighed w where w.is_over;
    return query select w, null::int8 from tidemill.wake_runs(deliver.jobs, deliver.at) w;
end $$;

-- Lets a job that waits for a slot or the clock wait until another time; answers its queue, or null when it does not
-- wait.
create function tidemill.put_off(id uuid, until timestamptz) returns text language plpgsql as $$
declare
    sheaf tidemill.ready := tidemill.take_out(put_off.id);
    number int8;
begin
    if sheaf.seq is null then
        return null;
    end if;
    number := tidemill.place(put_off.id, sheaf.queue, sheaf.priority, put_off.until, sheaf.kind, sheaf.tenant, sheaf.key,
        sheaf.attempt, sheaf.lost);
    update tidemill.job j set sheaf = number where j.id = put_off.id;
    return sheaf.queue;
end $$;

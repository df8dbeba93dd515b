-- The heart: bodies written once, ready work in sheaves of ids, one lease per claim, one outcome per job.
--
-- job      the body. Written once; changed only by a duplicate that replaces it.
-- ready    what waits: up to 100 ids of one queue, band, kind, tenant and key ('' for none) and due time (a sheaf).
--          The first `taken` of them are claimed already. `line`: 0 in line, 1 let through a gate, 2 held at `gate`.
-- lease    one row per claim; its key is the token. `gone`: ids it lost again (retried, snoozed, dead…).
-- outcome  exactly one row per finished job, append-only.
-- attempt  attempts that did not finish their job.
--
-- Where a job is: it has an outcome; or a lease names it and has neither let it go nor an outcome for it;
-- or the sheaf with the larger number of job.sheaf and its attempts' sheaves holds it; or it is blocked.
-- A number of a sheaf is taken when a job is put into it, so the latest is the largest.

-- Steps of 16,384, so that one number serves a whole batch: its sheaves are numbered onward from it.
create sequence tidemill.sheaf increment by 16384;

create table tidemill.job (
    id uuid primary key,
    kind text not null,
    queue text not null,
    priority int2 not null,
    tenant text,
    key text,
    unique_key text,
    sheaf int8 not null,
    payload json not null,
    options json,
    created_at timestamptz not null
);

create table tidemill.ready (
    seq int8 primary key,
    queue text collate "C" not null,
    priority int2 not null,
    tenant text collate "C" not null,
    run_at timestamptz not null,
    kind text not null,
    attempt int2 not null default 0,
    lost int2 not null default 0,
    taken int2 not null default 0,
    line int2 not null default 0, -- 0 in line, 1 let through a gate, 2 held at `gate`, 3 laid aside
    key text collate "C" not null default '',
    gate text collate "C" not null default '',
    ids uuid[] not null
);
-- By `seq + 0`, so that nobody who looks for a `seq` walks over this index: to a planner whose statistics are of
-- an empty table it looked as good as the primary key, and a claim took 190 ms.
create index ready_claim on tidemill.ready (queue, priority, tenant, run_at, (seq + 0)) where line < 2;
-- Whether anything of a tenant is due, however many of them wait for the clock. Most jobs have none, and no entry.
create index ready_due on tidemill.ready (queue, priority, run_at) where tenant <> '' and line < 2;
-- What was let through a gate comes back to where it stood, which claims may have passed by.
create index ready_let_through on tidemill.ready (queue, priority, run_at) where line = 1;
-- What turns of tenants pass by until it is due.
create index ready_aside on tidemill.ready (queue, priority, run_at) where line = 3;
-- By age, for a full queue that drops its oldest. By `priority + 0`, so that nobody who looks for a gate walks over it.
create index ready_held_aged on tidemill.ready (queue, (priority + 0), run_at) where line = 2;
create index ready_held on tidemill.ready (gate, queue, priority, tenant, run_at, (seq + 0)) where line = 2;

create sequence tidemill.lease_token_seq;
create table tidemill.lease (
    token int8 primary key default nextval('tidemill.lease_token_seq'),
    worker uuid not null,
    ask uuid not null,
    claimed_at timestamptz not null,
    ids uuid[] not null,
    attempts int2[] not null,
    losts int2[] not null,
    gone uuid[] not null default '{}',
    cancelled uuid[] not null default '{}',
    reasons text[] not null default '{}',
    gates text[] -- those its jobs are inside of
) with (fillfactor = 50);
create index lease_worker on tidemill.lease (worker);
-- Ids do not compress; trying cost a claim of 500 a quarter of its time.
alter table tidemill.lease alter column ids set storage external, alter column gone set storage external;

-- What callers decided in transactions of their own: this job is done, so. The next settle of its attempt, or the rescue
-- of its lease, carries that out and takes the row away.
create table tidemill.decided (
    id uuid primary key,
    token int8 not null,
    output text not null,
    follow_ups text
);

create table tidemill.outcome (
    id uuid primary key,
    queue text not null,
    state int2 not null,
    attempt int2 not null,
    lost int2 not null,
    token int8,
    worker uuid,
    finished_at timestamptz not null,
    retain_ms int8,
    keyed boolean not null,
    bare boolean not null default false, -- the body was forgotten; the key keeps the result
    output json,
    error text
);
create index outcome_cancelled on tidemill.outcome (id) where state = 5;

create table tidemill.attempt (
    id uuid not null,
    token int8 not null,
    attempt int2 not null,
    worker uuid,
    started_at timestamptz,
    ended_at timestamptz not null,
    class text,
    error text,
    next_at timestamptz,
    sheaf int8 not null,
    primary key (id, token)
);

-- scope: 0 while unfinished, 1 for a period (until), 2 for ever. next_id: the one kept for afterwards.
create table tidemill.unique_key (
    key text collate "C" primary key,
    id uuid not null,
    next_id uuid,
    next_due timestamptz,
    scope int2 not null,
    until timestamptz
);
create index unique_key_next on tidemill.unique_key (next_id) where next_id is not null;
create index unique_key_until on tidemill.unique_key (until) where scope = 1;

-- Lines: jobs of one queue, tenant and key that run one at a time. The head waits for a slot or the clock, runs, or is
-- dead and blocks the others. Whoever enters or leaves a line locks its row first.
create table tidemill.line (
    queue text collate "C" not null,
    tenant text collate "C" not null, -- '' if they have none
    key text collate "C" not null,
    head uuid not null,
    primary key (queue, tenant, key)
);

-- Those behind the head, in order; they are in no sheaf. Numbers are given under the line's lock, so they grow in the
-- order of commits.
create table tidemill.line_waiting (
    queue text collate "C" not null,
    tenant text collate "C" not null,
    key text collate "C" not null,
    number int8 generated always as identity,
    id uuid not null,
    due timestamptz not null,
    primary key (queue, tenant, key, number)
);
create unique index line_waiting_id on tidemill.line_waiting (id);

create table tidemill.dead (
    id uuid primary key,
    kind text not null,
    queue text not null,
    tenant text,
    class text not null,
    error text not null,
    fingerprint text not null,
    attempt int2 not null,
    started_at timestamptz, -- its last attempt
    died_at timestamptz not null,
    triage int2 not null default 0,
    redrives int2 not null default 0,
    archived boolean not null default false
);
create index dead_fingerprint on tidemill.dead (fingerprint);
create index dead_died_at on tidemill.dead (died_at, id);
-- What rules may redrive is looked for every few seconds.
create index dead_new on tidemill.dead (died_at, id) where triage = 0 and not archived;

create table tidemill.note (
    number int8 generated always as identity primary key,
    id uuid not null,
    at timestamptz not null,
    by_whom text not null,
    text text not null
);
create index note_id on tidemill.note (id);

create table tidemill.queue (
    name text primary key,
    rules json not null,
    version int8 not null
);

create table tidemill.redrive_rule (
    name text primary key,
    rule json not null
);

create table tidemill.worker (
    id uuid primary key,
    name text not null,
    queues text[] not null,
    kinds text[] not null,
    slots int4 not null,
    reach int4 not null, -- how many jobs it may hold at once: twice its slots, or what it asked for
    slots_of text not null, -- JSON: which of them a queue or pattern may take, where that is not all
    started_at timestamptz not null,
    beat_at timestamptz not null,
    lease_us int8 -- how long after a beat it is given up, if it says so itself
) with (fillfactor = 50);

create table tidemill.duty (
    name text primary key,
    holder uuid not null,
    until timestamptz not null,
    since timestamptz not null -- it has been its holder's without a gap
);

-- What callers from outside show: of each only the hash of its secret. A name is that of one live credential at most,
-- which the statement that adds one sees to. `used_at` is a minute or so behind.
create table tidemill.credential (
    id uuid primary key,
    name text not null,
    hash bytea not null unique,
    role text not null,
    queues text[] not null, -- none means all
    tenant text,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    used_at timestamptz
) with (fillfactor = 50);

-- Small tables with many dead rows: let vacuum come early and cheaply.
alter table tidemill.ready set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table tidemill.line set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table tidemill.line_waiting set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table tidemill.lease set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Enqueue, once, for everybody: the store's own batches with unique keys, a caller's transaction, plain SQL.

-- Puts one job into a new sheaf of its own; answers the sheaf's number. Never called by an update: whoever waits for a
-- row computes anew what he sets, and would put the job into two.
create function tidemill.place(
    id uuid, queue text, priority int2, run_at timestamptz, kind text, tenant text, key text, attempt int2, lost int2
) returns int8 language plpgsql as $$
declare
    sheaf int8 := nextval('tidemill.sheaf');
begin
    insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, attempt, lost, ids)
    values (sheaf, $2, $3, $4, $5, coalesce($6, ''), coalesce($7, ''), $8, $9, array[$1]);
    return sheaf;
end $$;

-- The number of the sheaf that holds a job if it waits. Its plan is kept, which those of functions in SQL are not:
-- reading and planning it took 0.2 ms of every look at a job.
create function tidemill.sheaf_of(id uuid) returns int8 language plpgsql stable as $$
begin
    return (
        select greatest(j.sheaf, (select max(a.sheaf) from tidemill.attempt a where a.id = $1))
        from tidemill.job j where j.id = $1
    );
end $$;

-- Locks the sheaf in which a job waits; nulls when the job does not wait.
create function tidemill.lock_sheaf(id uuid) returns tidemill.ready language plpgsql as $$
declare
    number int8 := tidemill.sheaf_of(lock_sheaf.id);
    former int8;
    sheaf tidemill.ready;
begin
    loop
        select r.* into sheaf from tidemill.ready r where r.seq = number for update;
        if lock_sheaf.id = any (sheaf.ids[sheaf.taken + 1:]) then
            return sheaf;
        end if;
        -- Whoever had it before us may have put the job into another one.
        former := number;
        number := tidemill.sheaf_of(lock_sheaf.id);
        if number is not distinct from former then
            return null;
        end if;
    end loop;
end $$;

-- Takes a waiting job out of its sheaf; answers the sheaf, or nulls when the job does not wait.
-- It changes the sheaf's row, so a claim whose snapshot is older looks again.
create function tidemill.take_out(id uuid) returns tidemill.ready language plpgsql as $$
declare
    sheaf tidemill.ready := tidemill.lock_sheaf(take_out.id);
begin
    if sheaf.seq is null then
        return null;
    end if;
    sheaf.ids := sheaf.ids[sheaf.taken + 1:];
    if cardinality(sheaf.ids) = 1 then
        delete from tidemill.ready r where r.seq = sheaf.seq;
    else
        update tidemill.ready r set ids = array_remove(sheaf.ids, take_out.id), taken = 0
        where r.seq = sheaf.seq;
    end if;
    return sheaf;
end $$;

-- How long a job wants to be kept, if it wants anything: `least` passes null by. No span is longer than a thousand years:
-- what was never checked is a number, too.
create function tidemill.retain_of(options json) returns int8 language sql immutable as $$
    select case when $1 ->> 'retain_ms' is not null
        then least(($1 ->> 'retain_ms')::numeric, 31622400000000)::int8 end
$$;

-- Whether a job takes its turn in the line of its queue, tenant and key.
create function tidemill.is_ordered(body tidemill.job) returns boolean language sql immutable as $$
    select ($1).key is not null and ($1).options ->> 'ordered' is not null
$$;

-- Whether two jobs take their turns in the same line.
create function tidemill.is_same_line(one tidemill.job, two tidemill.job) returns boolean language sql immutable as $$
    select tidemill.is_ordered($1) and tidemill.is_ordered($2) and ($1).queue = ($2).queue
        and ($1).tenant is not distinct from ($2).tenant and ($1).key = ($2).key
$$;

-- Locks lines, in order, each by a look of its own: behind unique keys, before sheaves and leases. A tenant may be
-- null.
create function tidemill.lock_lines(queues text[], tenants text[], keys text[]) returns void language plpgsql as $$
begin
    perform from (
        select distinct l.queue collate "C" as queue, coalesce(l.tenant, '') collate "C" as tenant,
            l.key collate "C" as key
        from unnest(queues, tenants, keys) l(queue, tenant, key) order by 1, 2, 3
    ) i, lateral (
        select from tidemill.line l where l.queue = i.queue and l.tenant = i.tenant and l.key = i.key for update
    ) l;
end $$;

-- The same for the lines of these jobs, as far as they are in one.
create function tidemill.lock_lines_of(ids uuid[]) returns void language plpgsql as $$
declare
    queues text[];
    tenants text[];
    keys text[];
begin
    select array_agg(j.queue), array_agg(j.tenant), array_agg(j.key) into queues, tenants, keys
    from unnest(ids) i(id), lateral (select * from tidemill.job j where j.id = i.id limit 1) j
    where tidemill.is_ordered(j);
    if queues is not null then
        perform tidemill.lock_lines(queues, tenants, keys);
    end if;
end $$;

-- Lets jobs that ask for order, whose bodies are written, wait for their turns in this order: who is the first of its
-- line for a slot or the clock, the others behind it. Whoever is first already stays so; one that has ceased to ask for
-- order waits for a slot or the clock.
create function tidemill.line_up(ids uuid[], dues timestamptz[], at timestamptz) returns void language plpgsql as $$
begin
    -- A line that is there is locked, and nothing else; so two batches wait for each other in one order.
    insert into tidemill.line as l (queue, tenant, key, head)
    select distinct on (j.queue collate "C", coalesce(j.tenant, '') collate "C", j.key collate "C")
        j.queue, coalesce(j.tenant, ''), j.key, j.id
    from unnest(line_up.ids) with ordinality i(id, place), lateral (
        select * from tidemill.job j where j.id = i.id limit 1
    ) j
    where tidemill.is_ordered(j)
    order by j.queue collate "C", coalesce(j.tenant, '') collate "C", j.key collate "C", i.place
    on conflict on constraint line_pkey do update set head = l.head where false;
    -- Only now: those who held the locks before us are visible to these statements.
    insert into tidemill.line_waiting (queue, tenant, key, id, due)
    select j.queue, coalesce(j.tenant, ''), j.key, j.id, i.due
    from unnest(line_up.ids, line_up.dues) with ordinality i(id, due, place), lateral (
        select * from tidemill.job j where j.id = i.id limit 1
    ) j, lateral (
        select l.head from tidemill.line l
        where l.queue = j.queue and l.tenant = coalesce(j.tenant, '') and l.key = j.key limit 1
    ) l
    where tidemill.is_ordered(j) and l.head <> j.id
    order by i.place;
    perform tidemill.start(i.id, i.due, line_up.at)
    from unnest(line_up.ids, line_up.dues) i(id, due), lateral (
        select * from tidemill.job j where j.id = i.id limit 1
    ) j
    where not tidemill.is_ordered(j) or exists (
        select from tidemill.line l
        where l.queue = j.queue and l.tenant = coalesce(j.tenant, '') and l.key = j.key and l.head = j.id);
end $$;

-- Takes jobs out of their lines; behind one that was the first, the next gets its turn. Answers the queues of those.
create function tidemill.leave_lines(ids uuid[], at timestamptz) returns setof text language plpgsql as $$
declare
    line tidemill.line;
    following tidemill.line_waiting;
begin
    perform tidemill.lock_lines_of(ids);
    -- They count as having come and gone. Only one that comes to the head of its line has not come anew.
    with gone as (
        delete from tidemill.line_waiting w where w.id = any (ids) returning w.queue
    )
    insert into tidemill.depth_delta (queue, tenant, came, went)
    select g.queue, '', count(*), count(*) from gone g group by g.queue;
    for line in
        select l.* from (
            select distinct j.queue, coalesce(j.tenant, '') as tenant, j.key
            from unnest(ids) i(id), lateral (select * from tidemill.job j where j.id = i.id limit 1) j
            where tidemill.is_ordered(j)
        ) i, lateral (
            select * from tidemill.line l
            where l.queue = i.queue and l.tenant = i.tenant and l.key = i.key limit 1
        ) l
        where l.head = any (ids)
    loop
        -- It waits for whoever replaces that one now, and sees its new due time.
        delete from tidemill.line_waiting w
        where w.queue = line.queue and w.tenant = line.tenant and w.key = line.key and w.number = (
            select n.number from tidemill.line_waiting n
            where n.queue = line.queue and n.tenant = line.tenant and n.key = line.key
            order by n.number limit 1)
        returning w.* into following;
        if found then
            update tidemill.line l set head = following.id
            where l.queue = line.queue and l.tenant = line.tenant and l.key = line.key;
            return next tidemill.start(following.id, following.due, leave_lines.at);
        else
            delete from tidemill.line l
            where l.queue = line.queue and l.tenant = line.tenant and l.key = line.key;
        end if;
    end loop;
end $$;

-- Lets those pass who wait behind dead letters that are given up. Answers their queues.
create function tidemill.let_pass(ids uuid[], at timestamptz) returns setof text language plpgsql as $$
declare
    dead uuid[] := array(select o.id from tidemill.outcome o where o.id = any (ids) and o.state = 6);
begin
    if cardinality(dead) = 0 then
        return;
    end if;
    perform tidemill.lock_lines_of(dead);
    -- Only now: one that was replayed meanwhile is not dead any more.
    return query select tidemill.leave_lines(
        array(select o.id from tidemill.outcome o where o.id = any (dead) and o.state = 6), let_pass.at);
end $$;

-- Writes a job and its sheaf, unless a job of this id was written before. One that asks for order is written without a
-- sheaf: whether it has still to be lined up is answered.
create function tidemill.write(body tidemill.job, run_at timestamptz) returns boolean language plpgsql as $$
declare
    is_ordered boolean := tidemill.is_ordered(body);
begin
    body.sheaf := case when is_ordered then 0 else nextval('tidemill.sheaf') end;
    insert into tidemill.job select body.* on conflict (id) do nothing;
    if found and not is_ordered then
        insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
        values (body.sheaf, body.queue, body.priority, write.run_at, body.kind, coalesce(body.tenant, ''),
            coalesce(body.key, ''), array[body.id]);
    end if;
    return found and is_ordered;
end $$;

-- Lets a job whose body is there wait for a slot or the clock; answers its queue.
create function tidemill.start(id uuid, due timestamptz, at timestamptz) returns text language plpgsql as $$
declare
    body tidemill.job;
    number int8;
begin
    select j.* into strict body from tidemill.job j where j.id = start.id;
    number := tidemill.place(body.id, body.queue, body.priority, greatest(start.due, start.at), body.kind, body.tenant,
        body.key, 0::int2, 0::int2);
    update tidemill.job j set sheaf = number where j.id = start.id;
    return body.queue;
end $$;

-- Lets a kept job wait for its turn; answers its queue.
create function tidemill.promote(id uuid, due timestamptz, at timestamptz) returns text language plpgsql as $$
declare
    body tidemill.job;
begin
    select j.* into strict body from tidemill.job j where j.id = promote.id;
    if tidemill.is_ordered(body) then
        perform tidemill.line_up(array[promote.id], array[promote.due], promote.at);
        return body.queue;
    end if;
    return tidemill.start(promote.id, promote.due, promote.at);
end $$;

-- Frees the keys of jobs that have finished; who was kept for afterwards gets its turn. Answers their queues.
create function tidemill.release(keys text[], holders uuid[], at timestamptz) returns setof text
language plpgsql as $$
declare
    held tidemill.unique_key;
begin
    for held in
        select u.* from (select distinct k collate "C" as key from unnest(keys) k order by 1) k, lateral (
            select * from tidemill.unique_key u where u.key = k.key for update
        ) u
    loop
        if not held.id = any (holders) then
            continue;
        elsif held.next_id is not null then
            update tidemill.unique_key u set id = held.next_id, next_id = null, next_due = null
            where u.key = held.key;
            return next tidemill.promote(held.next_id, held.next_due, release.at);
        elsif held.scope = 0 then
            delete from tidemill.unique_key u where u.key = held.key;
        end if;
    end loop;
end $$;

-- The wishes of whoever replaces a job, and what of the job's own options is no wish: who started it, where it stands.
create function tidemill.rewish(given json, former json) returns json language sql immutable as $$
    select nullif(
        coalesce(given::jsonb, '{}') - '{parent,origins,turn,flow}'::text[] || coalesce((
            select jsonb_object_agg(o.key, o.value) from jsonb_each(former::jsonb) o
            where o.key in ('parent', 'origins', 'turn', 'flow')), '{}'),
        '{}')::json
$$;

-- Writes one job, obeying its unique key. A duplicate is an answer, never an error. Sent again under the
-- same id it writes nothing. Who changes what the key stands for locks its row first, so that no two callers decide at
-- once. Who only learns that it is held does not: the end of the holder would wait for the caller's transaction.
-- `within`: names and patterns of the queues whose jobs it may be a duplicate of; one of others is not told of, and
-- stays as it is.
-- `lines_up`: the caller must still line up the job that is answered. It does so for a whole batch at once, because
-- lines are locked in order, and behind all unique keys; `pending` are those of the batch that wait for it, `moves`
-- says that one of them goes to another line.
create function tidemill.put(
    body tidemill.job, run_at timestamptz, scope int2, until timestamptz, on_duplicate text, forced boolean,
    at timestamptz, pending uuid[], within text[],
    out id uuid, out answer text, out lines_up boolean, out is_new boolean, out moves boolean
) language plpgsql as $$
declare
    held tidemill.unique_key;
    sheaf tidemill.ready;
    former tidemill.job;
    stays boolean;
    in_line boolean := false;
    number int8;
begin
    put.id := body.id;
    put.answer := 'enqueued';
    put.lines_up := false;
    put.is_new := false;
    put.moves := false;
    if body.unique_key is null then
        put.is_new := not exists (select from tidemill.job j where j.id = body.id);
        put.lines_up := tidemill.write(body, put.run_at);
        return;
    end if;
    loop
        if exists (select from tidemill.job j where j.id = body.id) then
            return;
        end if;
        insert into tidemill.unique_key (key, id, scope, until)
        values (body.unique_key, body.id, put.scope, put.until) on conflict (key) do nothing;
        if found then
            put.lines_up := tidemill.write(body, put.run_at);
            put.is_new := true;
            return;
        end if;
        select u.* into held from tidemill.unique_key u where u.key = body.unique_key;
        if found and (put.forced or (held.scope = 1 and held.until <= put.at)
            or on_duplicate not in ('reject', 'join', 'throttle')) then
            select u.* into held from tidemill.unique_key u where u.key = body.unique_key for update;
        end if;
        -- Not found: it was freed in between, so the key may be ours now.
        exit when found;
    end loop;
    if held.id = body.id then
        return;
    end if;
    if within is not null and not (held.scope = 1 and held.until <= put.at) and exists (
        select from tidemill.job j
        where j.id in (held.id, held.next_id)
            and not exists (select from unnest(within) w(name) where tidemill.means(w.name, j.queue))
    ) then
        put.answer := 'unreached';
        return;
    end if;
    if put.forced or (held.scope = 1 and held.until <= put.at) then
        if held.next_id is not null then
            perform tidemill.promote(held.next_id, held.next_due, put.at);
        end if;
        update tidemill.unique_key u
        set id = body.id, next_id = null, next_due = null, scope = put.scope, until = put.until
        where u.key = held.key;
        put.lines_up := tidemill.write(body, put.run_at);
        put.is_new := true;
        return;
    end if;
    put.id := held.id;
    put.answer := case on_duplicate when 'reject' then 'rejected' else 'joined' end;
    if on_duplicate in ('reject', 'join', 'throttle')
        or exists (select from tidemill.outcome o where o.id = held.id) then
        return;
    end if;
    -- A job goes from its place in a line to a sheaf, and never back: it is looked for in this order.
    if held.id = any (pending) then
        if on_duplicate <> 'run_once_more' then
            select j.* into former from tidemill.job j where j.id = held.id;
            put.moves := not tidemill.is_same_line(former, body);
            update tidemill.job j
            set payload = body.payload, options = tidemill.rewish(body.options, j.options), queue = body.queue,
                priority = body.priority, tenant = body.tenant, key = body.key
            where j.id = held.id;
            put.answer := 'replaced';
            put.lines_up := true;
        end if;
        return;
    elsif on_duplicate = 'run_once_more' then
        -- It must not start before the caller commits, or what the caller writes beside this is seen by nobody.
        select j.* into former from tidemill.job j where j.id = held.id;
        if tidemill.is_ordered(former) then
            perform tidemill.lock_lines(array[former.queue], array[former.tenant], array[former.key]);
            perform from tidemill.line_waiting w where w.id = held.id for update;
            if found and not tidemill.is_under_way(held.id) then
                return;
            end if;
        end if;
        sheaf := tidemill.lock_sheaf(held.id);
        if sheaf.seq is not null and not tidemill.is_under_way(held.id) then
            return;
        end if;
    else
        select j.* into former from tidemill.job j where j.id = held.id;
        stays := tidemill.is_same_line(former, body);
        if tidemill.is_ordered(former) then
            if not stays then
                perform tidemill.lock_lines(array[former.queue], array[former.tenant], array[former.key]);
            end if;
            perform from tidemill.line_waiting w where w.id = held.id for update;
            in_line := found and not tidemill.is_under_way(held.id);
            if in_line then
                update tidemill.line_waiting w set due = put.run_at where w.id = held.id;
            end if;
        end if;
        if not in_line then
            -- Only under the lock of its sheaf nobody lets it begin.
            sheaf := tidemill.lock_sheaf(held.id);
            if sheaf.seq is not null and tidemill.is_under_way(held.id) then
                sheaf := null;
            elsif sheaf.seq is not null then
                sheaf := tidemill.take_out(held.id);
            end if;
        end if;
        if in_line or sheaf.seq is not null then
            if tidemill.is_ordered(former) and not stays then
                perform tidemill.leave_lines(array[held.id], put.at);
            end if;
            put.lines_up := tidemill.is_ordered(body) and not stays;
            if not (put.lines_up or in_line and stays) then
                number := tidemill.place(held.id, body.queue, body.priority, put.run_at, body.kind, body.tenant, body.key,
                    coalesce(sheaf.attempt, 0::int2), coalesce(sheaf.lost, 0::int2));
            end if;
            update tidemill.job j
            set payload = body.payload, options = tidemill.rewish(body.options, j.options), queue = body.queue,
                priority = body.priority, tenant = body.tenant, key = body.key, sheaf = coalesce(number, 0)
            where j.id = held.id;
            put.answer := 'replaced';
            return;
        elsif on_duplicate = 'replace' then
            return;
        end if;
    end if;
    -- The holder runs, or has begun what it does: one more is kept for afterwards.
    if held.next_id is null then
        body.sheaf := 0;
        insert into tidemill.job select body.*;
        update tidemill.unique_key u set next_id = body.id, next_due = put.run_at where u.key = held.key;
        put.id := body.id;
        put.answer := 'kept';
    else
        update tidemill.job j
        set payload = body.payload, options = tidemill.rewish(body.options, j.options), key = body.key
        where j.id = held.next_id;
        if on_duplicate = 'debounce' then
            update tidemill.unique_key u set next_due = put.run_at where u.key = held.key;
        end if;
        put.id := held.next_id;
    end if;
end $$;

-- Makes a job that waits for the clock due now; answers its queue, or null when it does not wait so.
create function tidemill.run_now(id uuid, at timestamptz) returns text language plpgsql as $$
declare
    sheaf tidemill.ready := tidemill.lock_sheaf(run_now.id);
    number int8;
begin
    if sheaf.seq is null or sheaf.run_at <= run_now.at then
        return null;
    end if;
    sheaf := tidemill.take_out(run_now.id);
    number := tidemill.place(run_now.id, sheaf.queue, sheaf.priority, run_now.at, sheaf.kind, sheaf.tenant, sheaf.key,
        sheaf.attempt, sheaf.lost);
    update tidemill.job j set sheaf = number where j.id = run_now.id;
    return sheaf.queue;
end $$;

-- Changes a job that waits. In another band it stands by its due time, marked as one that claims may have gone by; if
-- its step of a flow is not opened, it gets a sheaf of its own, which will be of that band.
create function tidemill.edit(id uuid, priority int2, payload json, options json) returns void language plpgsql as $$
declare
    sheaf tidemill.ready;
    number int8;
begin
    if exists (select from tidemill.job j where j.id = edit.id and j.priority <> edit.priority) then
        sheaf := tidemill.take_out(edit.id);
        if sheaf.seq is not null then
            number := tidemill.place(edit.id, sheaf.queue, edit.priority, sheaf.run_at, sheaf.kind, sheaf.tenant,
                sheaf.key, sheaf.attempt, sheaf.lost);
            update tidemill.ready r set line = 1 where r.seq = number;
            update tidemill.job j set sheaf = number where j.id = edit.id;
        else
            number := nextval('tidemill.sheaf');
            update tidemill.job j set sheaf = number, place = number
            where j.id = edit.id and j.sheaf > 0 and j.flow is not null;
        end if;
    end if;
    update tidemill.job j set priority = edit.priority, payload = edit.payload, options = edit.options
    where j.id = edit.id;
end $$;

-- The options of a dead job that runs again: all its time anew.
create function tidemill.sent_again(options json, at timestamptz) returns json language sql as $$
    select (coalesce($1::jsonb, '{}') || jsonb_build_object(
        'replayed_at', to_char($2 at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::json
$$;

-- Sends dead letters on their way again, with all attempts unspent, and notes it. Answers those that were dead. One
-- that blocks its line is still its first; one that did not goes to the end of its line. What a saga has turned back from
-- stays dead: only its undos can be sent again. So does what holds up a saga that is stuck, unless it is said why; a job
-- of a flow whose time is over, of which others may be forgotten already; and a job of a schedule, while another that
-- excludes it is unfinished. `present`: the time, if it is set by hand.
create function tidemill.replay(ids uuid[], by_whom text, why text, payload json, present timestamptz)
returns table (id uuid, queue text) language plpgsql as $$
declare
    at timestamptz := coalesce(present, now());
    flows uuid[];
    body tidemill.job;
    ordered uuid[] := '{}';
    number int8;
begin
    -- Who turns a saga back at this moment is waited for: what it undoes must not be done after that. So is who begins to
    -- forget a flow; one whose time is over is left to him.
    flows := array(
        select f.id from tidemill.flow f
        where f.id = any (array(select j.flow from tidemill.job j where j.id = any (replay.ids)))
            and (f.forget_at is null or f.forget_at > coalesce(present, clock_timestamp()))
        order by f.id for share);
    -- The letters are locked before anything is taken for them: one that is purged at this moment is not sent again,
    -- nor one of which only the result is left. A run that is undone, or has something to be undone, stays dead; its end and what it owes are seen together.
    replay.ids := array(
        select i.id from (
            select o.id from tidemill.outcome o
            where o.id = any (replay.ids) and o.state = 6 and not o.bare
            order by o.id for update
        ) i
        where exists (select from tidemill.dead d where d.id = i.id)
            and not exists (select from tidemill.debt d where d.job = i.id)
            and not exists (select from tidemill.run r where r.job = i.id and r.undone)
            and not exists (
            -- The lock may have been waited for, until it was too late.
            select from (select j.flow from tidemill.job j where j.id = i.id offset 0) j join tidemill.flow f on f.id = j.flow
            where f.id <> all (flows) or f.forget_at <= coalesce(present, clock_timestamp()))
            and not exists (
            select from (select j.flow, j.step from tidemill.job j where j.id = i.id offset 0) j
            join tidemill.flow f on f.id = j.flow and f.saga
            join tidemill.flow_step s on s.flow = j.flow and s.number = j.step and s.undoes is null
            where (f.state in (6, 7) or f.state = 8 and exists (
                select from tidemill.flow_step u where u.flow = f.id and u.undoes is not null)))
            and (replay.why is not null or not exists (
                select from tidemill.job j join tidemill.flow f on f.id = j.flow and f.state = 8 where j.id = i.id)));
    insert into tidemill.unique_key (key, id, scope)
    select j.unique_key, j.id, 0 from tidemill.job j
    where j.id = any (replay.ids) and j.unique_key is not null
    order by j.unique_key collate "C", j.id
    on conflict (key) do nothing;
    -- Jobs of a schedule that exclude each other: one whose key another has stays dead.
    replay.ids := array(
        select j.id from tidemill.job j
        where j.id = any (replay.ids) and (j.unique_key is null or not starts_with(j.unique_key, 'tidemill:schedule=')
            or exists (select from tidemill.unique_key u where u.key = j.unique_key and u.id = j.id)));
    perform tidemill.lock_lines_of(replay.ids);
    for body in select j.* from tidemill.job j where j.id = any (replay.ids) order by j.unique_key, j.id loop
        -- The attempt that killed it stays known: whoever undoes it later must know that it may have taken effect.
        insert into tidemill.attempt (id, token, attempt, worker, started_at, ended_at, class, error, sheaf)
        select o.id, o.token, o.attempt, o.worker, d.started_at, o.finished_at, d.class, o.error, 0
        from tidemill.outcome o join tidemill.dead d on d.id = o.id
        where o.id = body.id and o.state = 6 and o.token is not null
        on conflict do nothing;
        delete from tidemill.outcome o where o.id = body.id;
        if body.flow is not null then
            -- Its flow takes back that it failed.
            insert into tidemill.flow_arrival (flow, step, ok, failed) values (body.flow, body.step, 0, -1);
        end if;
        if tidemill.is_ordered(body) then
            ordered := ordered || body.id;
            number := 0;
        else
            number := tidemill.place(body.id, body.queue, body.priority, at, body.kind, body.tenant, body.key,
                0::int2, 0::int2);
        end if;
        update tidemill.job j
        set payload = coalesce(replay.payload, j.payload), options = tidemill.sent_again(j.options, at),
            sheaf = number
        where j.id = body.id;
        update tidemill.dead d set triage = 2, redrives = d.redrives + 1 where d.id = body.id;
        insert into tidemill.note (id, at, by_whom, text) values (body.id, at, replay.by_whom,
            case when replay.payload is null then 'replayed' else 'replayed with another payload' end
            || coalesce(': ' || replay.why, ''));
        replay.id := body.id;
        replay.queue := body.queue;
        return next;
    end loop;
    if cardinality(ordered) > 0 then
        perform tidemill.line_up(ordered, array_fill(at, array[cardinality(ordered)]), at);
    end if;
end $$;

-- Takes out of the sheaves of this batch who was written by another transaction meanwhile, and waits in one of that.
create function tidemill.leave_beaten(first_sheaf int8) returns void language plpgsql as $$
begin
    with own as materialized (
        select r.seq, array(
            select i.id from unnest(r.ids) with ordinality i(id, place), lateral (
                select from tidemill.job j where j.id = i.id and j.sheaf = r.seq limit 1
            ) j order by i.place) as ids
        from tidemill.ready r where r.seq > first_sheaf and r.seq < first_sheaf + 16384
    ), kept as (
        update tidemill.ready r set ids = o.ids from own o
        where r.seq = o.seq and o.ids <> '{}' and cardinality(o.ids) < cardinality(r.ids)
    )
    delete from tidemill.ready r using own o where r.seq = o.seq and o.ids = '{}';
end $$;

-- Writes a batch in the caller's transaction: an array of objects with the fields named below; `payload`
-- is a string that holds JSON, so that it is kept to the letter. Answers each by its place, from 1.
-- Keys are taken in order, so that two batches do not block each other. `bounded`: queues that are full overflow as
-- their rules say, or refuse the whole batch; else it is written whatever their depth. Without `diverts`, it is
-- refused where it would have to be diverted: it is of several callers, some of whose jobs may fit. Jobs that take
-- turns stay in their lines, and are never diverted.
create function tidemill.enqueue_json(
    jobs text, at timestamptz default null, bounded boolean default true, diverts boolean default true
) returns table (ord int8, id uuid, answer text) language plpgsql as $$
declare
    body tidemill.job;
    present timestamptz := coalesce(enqueue_json.at, now());
    first_sheaf int8 := nextval('tidemill.sheaf');
    routes jsonb; -- where each queue's jobs go, if any of the queues may have a bound
    new_queues text[];
    new_bands int2[];
    line record;
    up_ids uuid[] := '{}';
    up_dues timestamptz[] := '{}';
    up_ords int8[] := '{}';
    place int4;
    judged record;
    beaten int8; -- of which another transaction has written the id meanwhile
begin
    if bounded and exists (select from tidemill.queue q where q.depth_max is not null) then
        select jsonb_object_agg(q.queue, case when diverts then tidemill.route(q.queue, q.jobs) else q.queue end)
        into routes
        from (
            select l.queue, count(*) as jobs from json_to_recordset(enqueue_json.jobs::json) as l(queue text)
            group by l.queue
        ) q
        having tidemill.is_bounded(array_agg(q.queue));
    end if;
    with base as materialized (
        select first_sheaf as first
    ), line as materialized (
        select distinct on (l.id) l.id, l.kind, coalesce(routes ->> l.queue, l.queue) as queue, l.priority, l.tenant,
            l.key, l.payload, l.options, l.ord,
            greatest(present, coalesce(l.run_at, present + l.delay_us * interval '1 us')) as due
        from rows from (json_to_recordset(jobs::json) as (
            id uuid, kind text, queue text, priority int2, run_at timestamptz, delay_us int8, tenant text,
            key text, unique_key text, payload text, options json
        )) with ordinality as l(
            id, kind, queue, priority, run_at, delay_us, tenant, key, unique_key, payload, options, ord)
        where l.unique_key is null and (l.key is null or l.options ->> 'ordered' is null)
            and not exists (select from tidemill.job j where j.id = l.id)
    ), part as (
        select *, (row_number() over (partition by l.queue, l.priority, l.kind, l.tenant, l.key, l.due order by l.ord)
            - 1) / 100 as part
        from line l
    ), lot as (
        select *, min(p.ord) over (partition by p.queue, p.priority, p.kind, p.tenant, p.key, p.due, p.part) as lot
        from part p
    ), placed as materialized (
        select *, base.first + dense_rank() over (order by l.lot) as sheaf from lot l, base
    ), waiting as (
        insert into tidemill.ready (seq, queue, priority, run_at, kind, tenant, key, ids)
        select l.sheaf, l.queue, l.priority, l.due, l.kind, coalesce(l.tenant, ''), coalesce(l.key, ''),
            array_agg(l.id order by l.ord)
        from placed l group by l.sheaf, l.queue, l.priority, l.due, l.kind, l.tenant, l.key
    ), written as (
        insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at)
        select l.id, l.kind, l.queue, l.priority, l.tenant, l.key, l.sheaf, l.payload::json, l.options, present
        from placed l order by l.ord
        on conflict on constraint job_pkey do nothing returning 1
    )
    select array_agg(l.queue) filter (where routes is not null),
        array_agg(l.priority) filter (where routes is not null), count(*) - (select count(*) from written)
    into new_queues, new_bands, beaten from placed l;
    if beaten > 0 then
        perform tidemill.leave_beaten(first_sheaf);
    end if;

    -- Bodies of those that take turns; all of the batch are lined up at its end.
    if position('"ordered":' in jobs) > 0 then
        with line as materialized (
            select distinct on (l.id) l.*,
                greatest(present, coalesce(l.run_at, present + l.delay_us * interval '1 us')) as due
            from rows from (json_to_recordset(jobs::json) as (
                id uuid, kind text, queue text, priority int2, run_at timestamptz, delay_us int8, tenant text,
                key text, unique_key text, payload text, options json
            )) with ordinality as l(
                id, kind, queue, priority, run_at, delay_us, tenant, key, unique_key, payload, options, ord)
            where l.unique_key is null and l.key is not null and l.options ->> 'ordered' is not null
            order by l.id, l.ord
        ), written as (
            insert into tidemill.job (id, kind, queue, priority, tenant, key, sheaf, payload, options, created_at)
            select l.id, l.kind, l.queue, l.priority, l.tenant, l.key, 0, l.payload::json, l.options, present
            from line l order by l.ord
            on conflict on constraint job_pkey do nothing returning job.id
        ), known as materialized (
            -- Few, if any; to join those that were written compared each with each.
            select l.id from line l except select w.id from written w
        )
        select coalesce(array_agg(l.id), '{}'), coalesce(array_agg(l.due), '{}'), coalesce(array_agg(l.ord), '{}'),
            new_queues || array_agg(l.queue), new_bands || array_agg(l.priority)
        into up_ids, up_dues, up_ords, new_queues, new_bands from line l
        where l.id <> all (array(select k.id from known k));
    end if;

    -- Keys before lines: one that is replaced may stand in a line, and that is locked behind all keys of the batch.
    if jobs ~ '"on_duplicate":"(replace|debounce|run_once_more)"' then
        perform from (
            select distinct l.unique_key collate "C" as key from json_to_recordset(jobs::json) as l(unique_key text)
            where l.unique_key is not null order by 1
        ) k, lateral (select from tidemill.unique_key u where u.key = k.key for update) u;
    end if;

    for line in
        select l.* from rows from (json_to_recordset(jobs::json) as (
            id uuid, kind text, queue text, priority int2, run_at timestamptz, delay_us int8, tenant text,
            key text, unique_key text, scope int2, period_us int8, on_duplicate text, force boolean,
            payload text, options json, within text[]
        )) with ordinality as l(
            id, kind, queue, priority, run_at, delay_us, tenant, key, unique_key, scope, period_us,
            on_duplicate, force, payload, options, within, ord)
        order by l.unique_key collate "C" nulls first, l.ord
    loop
        ord := line.ord;
        id := line.id;
        answer := 'enqueued';
        if line.unique_key is not null then
            if line.key is null or line.options ->> 'ordered' is null then
                line.queue := coalesce(routes ->> line.queue, line.queue);
            end if;
            -- By name: the table has more columns than these by now.
            select line.id, line.kind, line.queue, line.priority, line.tenant, line.key, line.unique_key, 0,
                line.payload::json, line.options, present
            into body.id, body.kind, body.queue, body.priority, body.tenant, body.key, body.unique_key, body.sheaf,
                body.payload, body.options, body.created_at;
            select p.id, p.answer, p.lines_up, p.is_new, p.moves into judged
            from tidemill.put(
                body,
                greatest(present, coalesce(line.run_at, present + line.delay_us * interval '1 us')),
                line.scope, present + line.period_us * interval '1 us', line.on_duplicate, line.force, present,
                up_ids, line.within) p;
            id := judged.id;
            answer := judged.answer;
            if judged.lines_up then
                -- One that was replaced within the batch keeps its place, unless it goes to another line.
                place := coalesce(array_position(up_ids, enqueue_json.id), cardinality(up_ids) + 1);
                up_ids[place] := enqueue_json.id;
                up_dues[place] := greatest(present,
                    coalesce(line.run_at, present + line.delay_us * interval '1 us'));
                up_ords[place] := case when judged.moves then line.ord else coalesce(up_ords[place], line.ord) end;
            end if;
            if judged.is_new and routes is not null then
                new_queues := new_queues || line.queue;
                new_bands := new_bands || line.priority;
            end if;
        end if;
        return next;
    end loop;
    if cardinality(up_ids) > 0 then
        perform tidemill.line_up(array_agg(u.id order by u.ord), array_agg(u.due order by u.ord), present)
        from unnest(up_ids, up_dues, up_ords) u(id, due, ord);
    end if;
    for judged in
        select n.queue, count(*) as jobs, max(n.band) as band from unnest(new_queues, new_bands) n(queue, band)
        where routes is not null group by n.queue order by n.queue
    loop
        perform tidemill.admit(judged.queue, judged.jobs, judged.band, first_sheaf, present);
    end loop;
end $$;

-- Plain SQL: what an INSERT into the view tidemill_enqueue, or tidemill.enqueue(), may wish for.

create type tidemill.wish as (
    id uuid, kind text, payload text, queue text, priority text, run_at text, delay_ms int8, tenant text, key text,
    unique_key text, unique_scope text, unique_period_ms int8, on_duplicate text, force boolean, options text,
    ordered text
);

-- A UUIDv7, for callers that bring no id.
create function tidemill.uuid7() returns uuid language sql volatile as $$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing substring(
        int8send(floor(extract(epoch from clock_timestamp()) * 1000)::int8) from 3) from 1 for 6), 52, 1), 53, 1),
        'hex')::uuid
$$;

-- Refuses an input, with the stable code of the refusal.
create function tidemill.refuse(code text, message text) returns void language plpgsql as $$
begin
    raise exception 'tidemill: %: %', code, message using errcode = 'invalid_parameter_value';
end $$;

-- Refuses a name that is ours: whoever could put jobs there could have anything signed and sent as a webhook.
create function tidemill.check_own(what text, name text) returns void language plpgsql as $$
begin
    if starts_with(name, 'tidemill:') then
        perform tidemill.refuse('name_reserved',
            format('the %s %L begins with "tidemill:", which is for Tidemill itself; choose another', what, name));
    end if;
end $$;

create function tidemill.check_name(what text, name text, bytes_max int) returns void language plpgsql as $$
begin
    if name = '' then
        perform tidemill.refuse('name_empty', format('the %s is empty', what));
    elsif octet_length(name) > bytes_max then
        perform tidemill.refuse('name_too_long',
            format('the %s has %s bytes, the limit is %s', what, octet_length(name), bytes_max));
    elsif name ~ '[[:cntrl:]]' then
        perform tidemill.refuse('name_invalid', format('the %s %L contains a control character', what, name));
    elsif what <> 'unique key' and name <> btrim(name,
        U&' \00a0\1680\2000\2001\2002\2003\2004\2005\2006\2007\2008\2009\200a\2028\2029\202f\205f\3000') then
        perform tidemill.refuse('name_invalid',
            format('the %s %L begins or ends with white space; leave that out', what, name));
    end if;
end $$;

create function tidemill.check_word(what text, word text, known text[]) returns void language plpgsql as $$
begin
    if not word = any (known) then
        perform tidemill.refuse('word_unknown',
            format('"%s" is not a %s; one of %s', word, what, array_to_string(known, ', ')));
    end if;
end $$;

create function tidemill.check_duration(what text, ms int8) returns void language plpgsql as $$
begin
    if ms not between 0 and 3155760000000 then
        perform tidemill.refuse('duration_invalid',
            format('the %s is not a number of milliseconds below 100 years', what));
    end if;
end $$;

-- Reads a time, or refuses it.
create function tidemill.read_time(run_at text) returns timestamptz language plpgsql as $$
begin
    return run_at::timestamptz;
exception when data_exception then
    perform tidemill.refuse('time_invalid', format('run_at is a time as in RFC 3339, not "%s"', run_at));
end $$;

-- Whether it reads as JSON, escapes not looked into.
create function tidemill.is_json(payload text) returns boolean language plpgsql as $$
begin
    return payload::json is not null;
exception when invalid_text_representation then
    return false;
end $$;

-- Whether two are the same JSON, however they are written.
create function tidemill.is_same_json(one json, other json) returns boolean language plpgsql as $$
begin
    return one::text = other::text or one::jsonb = other::jsonb;
exception when numeric_value_out_of_range then
    return false;
end $$;

-- Whether it is nested deeper than so many levels, counted as the library does: brackets outside of strings.
create function tidemill.is_deeper(payload text, depth_max int4) returns boolean language plpgsql immutable as $$
declare
    brackets bytea;
    depth int4 := 0;
begin
    -- Only what has so many brackets can be so deep.
    if length(payload) - length(translate(payload, '[{', '')) <= depth_max then
        return false;
    end if;
    brackets := convert_to(regexp_replace(
        regexp_replace(payload, '"(\\.|[^"\\])*("|$)', '', 'g'), '[^][{}]', '', 'g'), 'UTF8');
    for at in 0 .. octet_length(brackets) - 1 loop
        if get_byte(brackets, at) in (91, 123) then
            depth := depth + 1;
        else
            depth := greatest(depth - 1, 0);
        end if;
        if depth > depth_max then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- Reads all escapes of what should be JSON; fails as `jsonb` does. No number is ever read here: behind one that is too
-- large the strings are read all the same.
create function tidemill.read_escapes(payload text) returns void language plpgsql as $$
begin
    perform payload::jsonb;
exception when numeric_value_out_of_range then
    perform payload::json;
    perform ('[' || coalesce(string_agg(m[1], ','), '') || ']')::jsonb
    from regexp_matches(payload, '("(?:\\.|[^"\\])*")', 'g') m;
end $$;

-- Refuses what is not JSON, what is too large or too deep, and what a text column cannot keep.
create function tidemill.check_payload(payload text) returns void language plpgsql as $$
begin
    if octet_length(payload) > 1048576 then
        perform tidemill.refuse('payload_too_large', format('the payload has %s bytes, the limit is 1048576; '
            'store large data elsewhere and enqueue a reference to it', octet_length(payload)));
    end if;
    if tidemill.is_deeper(payload, 64) then
        perform tidemill.refuse('payload_too_deep', 'the payload is nested deeper than 64 levels');
    end if;
    perform tidemill.read_escapes(payload);
exception
    when untranslatable_character then
        perform tidemill.refuse('payload_nul',
            'the payload contains the character U+0000, which databases cannot keep as text');
    when invalid_text_representation then
        if tidemill.is_json(payload) then
            -- The only thing that json lets pass and jsonb does not.
            perform tidemill.refuse('payload_surrogate',
                'the payload contains half of a surrogate pair: it is not Unicode text');
        end if;
        perform tidemill.refuse('payload_not_json', 'the payload is not JSON: ' || sqlerrm);
end $$;

-- Refuses retries that cannot be followed.
create function tidemill.check_retry(retry json) returns void language plpgsql as $$
declare
    backoff json := retry -> 'backoff';
    number text := '^[0-9]{1,18}$';
    fits boolean;
begin
    -- Numbers are looked at as they are written: "5" and 1e3 are none that a worker reads.
    fits := not exists (
        select from json_each(retry) r
        where not case
            when r.key in ('attempts_max', 'ambiguous_max')
                then r.value::text ~ '^[0-9]{1,5}$' and r.value::text::int4 between 1 and 65535
            else r.key = 'backoff' and json_typeof(r.value) = 'object'
        end);
    if fits and backoff is not null then
        fits := not exists (
            select from json_each(backoff) b
            where not case b.key
                when 'jitter' then b.value #>> '{}' in ('full', 'equal', 'none')
                when 'delays_ms' then json_typeof(b.value) = 'array'
                when 'type' then b.value #>> '{}' in ('exponential', 'decorrelated', 'fixed', 'custom')
                else b.key in ('base_ms', 'cap_ms', 'delay_ms') and b.value::text ~ number
            end);
    end if;
    if fits and backoff is not null then
        fits := case backoff ->> 'type'
            when 'fixed' then backoff -> 'delay_ms' is not null
            when 'custom' then json_array_length(backoff -> 'delays_ms') between 1 and 100
                and not exists (select from json_array_elements(backoff -> 'delays_ms') d where d::text !~ number)
            else (backoff ->> 'base_ms')::int8 <= (backoff ->> 'cap_ms')::int8
        end;
    end if;
    if fits is not true then
        perform tidemill.refuse('options_invalid', 'the option retry has attempts_max and ambiguous_max of 1 to 65535, '
            'and as backoff one of {"type":"exponential","base_ms":1000,"cap_ms":3600000,"jitter":"full"}, '
            '{"type":"decorrelated","base_ms":1000,"cap_ms":3600000}, {"type":"fixed","delay_ms":1000}, '
            '{"type":"custom","delays_ms":[1000]}');
    end if;
end $$;

-- Whether it is a trace context as W3C writes it; a later version may say more behind it.
create function tidemill.is_trace(trace text) returns boolean language sql immutable as $$
    select octet_length($1) <= 1024 and $1 !~ '[[:cntrl:]]'
        and btrim($1) ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-|$)'
        and btrim($1) !~ '^ff|^..-0{32}|^.{36}0{16}|^00.{53}.'
$$;

-- Refuses options that no worker could read.
create function tidemill.check_options(given text) returns void language plpgsql as $$
declare
    options json;
    name text;
    value json;
    fits boolean;
begin
    begin
        perform tidemill.read_escapes(given);
        options := given::json;
    exception
        when invalid_text_representation then
            null;
        when untranslatable_character then
            fits := false;
    end;
    if fits is false then
        perform tidemill.refuse('options_invalid',
            'the options contain the character U+0000, which databases cannot keep as text');
    end if;
    if given is not null and json_typeof(options) is distinct from 'object' then
        perform tidemill.refuse('options_invalid', 'the options are not a JSON object');
    end if;
    for name, value in select o.key, o.value from json_each(options) o loop
        perform tidemill.check_word('known option', name, array[
            'retry', 'run_timeout_ms', 'start_within_ms', 'finish_within_ms', 'tags', 'trace', 'retain_ms',
            'ordered']);
        fits := case
            when name = 'retry' then json_typeof(value) = 'object'
            when name in ('trace', 'ordered') then json_typeof(value) = 'string'
            when name = 'tags' then json_typeof(value) = 'array' and not exists (
                select from json_array_elements(value) t where json_typeof(t) <> 'string')
            else value::text ~ '^[0-9]{1,18}$'
        end;
        if fits is not true then
            perform tidemill.refuse('options_invalid', format('the option %s cannot be %s', name, value));
        end if;
        if name like '%\_ms' and value::text::int8 > 31622400000000 then
            perform tidemill.refuse('duration_invalid',
                format('the option %s is not a number of milliseconds below 1000 years', name));
        elsif name = 'tags' and (json_array_length(value) > 32 or exists (
            select from json_array_elements_text(value) t where octet_length(t) not between 1 and 200)) then
            perform tidemill.refuse('options_invalid', 'there are at most 32 tags, of 1 to 200 bytes each');
        elsif name = 'tags' then
            perform tidemill.check_name('tag', t, 200) from json_array_elements_text(value) t;
        elsif name = 'trace' and not tidemill.is_trace(value #>> '{}') then
            perform tidemill.refuse('trace_invalid', format('the trace context %s is not a traceparent; one is like '
                '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', value));
        elsif name = 'retry' then
            perform tidemill.check_retry(value);
        elsif name in ('run_timeout_ms', 'start_within_ms', 'finish_within_ms') and value::text !~ '[1-9]' then
            perform tidemill.refuse('rule_invalid', format('the rule of the %s is refused: 0 would end %s; give at '
                'least 1 ms',
                case name when 'run_timeout_ms' then 'run timeout' when 'start_within_ms' then 'deadline to start'
                    else 'deadline to finish' end,
                case name when 'run_timeout_ms' then 'every attempt as it begins'
                    else 'the job before it begins' end));
        elsif name = 'ordered' then
            perform tidemill.check_word('policy for those behind a dead job', value #>> '{}', array['block', 'skip']);
        end if;
    end loop;
end $$;

-- Refuses an id that another job has. Sent again it is there already; of a job that took over what a duplicate said only
-- the key tells that it is the same, and a full queue may have sent it to another one.
create function tidemill.check_taken(body tidemill.job, wanted text) returns void language plpgsql as $$
declare
    there tidemill.job;
begin
    select j.* into there from tidemill.job j where j.id = body.id;
    if not found or there.kind = body.kind and there.tenant is not distinct from body.tenant and (
        coalesce(there.unique_key = body.unique_key, false)
        or tidemill.is_same_json(there.payload, body.payload)
            and there.queue in (wanted, body.queue, (tidemill.rule_of(wanted)).divert)
    ) is true then
        return;
    end if;
    perform tidemill.refuse('id_taken', format('another job has the id %s, and nothing was enqueued; give this one an id '
        'of its own, or none', body.id));
end $$;

-- Checks one wish and writes its job; answers the id of the job that stands for it.
create function tidemill.put_wish(wish tidemill.wish) returns uuid language plpgsql as $$
declare
    present timestamptz := now();
    body tidemill.job;
    due timestamptz;
    bands text[] := array['urgent', 'high', 'normal', 'low'];
    first_sheaf int8;
    answered record;
    keyless text := case
        when wish.unique_key is not null then null
        when wish.on_duplicate is not null then 'on_duplicate is given and unique_key is not'
        when wish.force then 'force is true and unique_key is not given'
        when wish.unique_scope is not null then 'unique_scope is given and unique_key is not'
        when wish.unique_period_ms is not null then 'unique_period_ms is given and unique_key is not'
    end;
begin
    perform tidemill.check_name('kind', coalesce(wish.kind, ''), 200);
    perform tidemill.check_name('queue', wish.queue, 200);
    perform tidemill.check_name('tenant', wish.tenant, 200);
    perform tidemill.check_name('key', wish.key, 200);
    perform tidemill.check_name('unique key', wish.unique_key, 500);
    perform tidemill.check_own('kind', wish.kind);
    perform tidemill.check_own('queue', wish.queue);
    perform tidemill.check_payload(coalesce(wish.payload, 'null'));
    perform tidemill.check_options(wish.options);
    perform tidemill.check_word('policy for those behind a dead job', wish.ordered, array['block', 'skip']);
    wish.ordered := coalesce(wish.ordered, wish.options::json ->> 'ordered');
    if wish.ordered is not null and wish.key is null then
        perform tidemill.refuse('key_missing', 'the job asks for order but has no key; give the key whose jobs are to '
            'run one after the other, such as order:42, or do not ask for order');
    end if;
    wish.priority := coalesce(bands[case when wish.priority ~ '^[0-3]$' then wish.priority::int + 1 end],
        wish.priority, 'normal');
    wish.unique_scope := coalesce(wish.unique_scope, 'unfinished');
    wish.on_duplicate := coalesce(wish.on_duplicate, 'reject');
    perform tidemill.check_word('priority', wish.priority, bands);
    perform tidemill.check_word('scope', wish.unique_scope, array['unfinished', 'period', 'forever']);
    perform tidemill.check_word('policy for duplicates', wish.on_duplicate,
        array['reject', 'join', 'replace', 'debounce', 'throttle', 'run_once_more']);
    if wish.unique_scope = 'period' and wish.unique_period_ms is null then
        perform tidemill.refuse('duration_invalid', 'the scope period needs unique_period_ms');
    end if;
    perform tidemill.check_duration('period', wish.unique_period_ms);
    if wish.unique_period_ms = 0 then
        perform tidemill.refuse('rule_invalid', 'the rule of the scope of the unique key is refused: '
            '0 would hold it for no time at all; give at least 1 ms');
    end if;
    perform tidemill.check_duration('delay', wish.delay_ms);
    if keyless is not null then
        perform tidemill.refuse('wish_contradiction', format('the wishes of the job contradict each other: %s; duplicates '
            'need something that makes them the same', keyless));
    elsif wish.delay_ms is not null and wish.run_at is not null then
        perform tidemill.refuse('wish_contradiction', 'the wishes of the job contradict each other: delay_ms and run_at '
            'are both given; a job starts after a delay or at a time, not both');
    end if;
    due := greatest(present, coalesce(tidemill.read_time(wish.run_at), present + wish.delay_ms * interval '1 ms'));
    if due > present + interval '20 years' then
        perform tidemill.refuse('due_too_far', format('the due time %s is more than 20 years away', due));
    end if;
    if due > present and (wish.options::json ->> 'finish_within_ms')::numeric
        <= 1000 * extract(epoch from due - present) then
        perform tidemill.refuse('wish_contradiction', format('the wishes of the job contradict each other: it is not due '
            'before %s ms, and its deadline to finish, which counts from its enqueue, is %s ms: it could only die',
            round(1000 * extract(epoch from due - present)), wish.options::json ->> 'finish_within_ms'));
    end if;
    body.id := coalesce(wish.id, tidemill.uuid7());
    body.kind := wish.kind;
    body.queue := coalesce(wish.queue, 'default');
    body.priority := array_position(bands, wish.priority) - 1;
    body.tenant := wish.tenant;
    body.key := wish.key;
    body.unique_key := wish.kind || '=' || wish.unique_key || coalesce(chr(31) || wish.tenant, '');
    body.payload := trim(coalesce(wish.payload, 'null'), E' \n\r\t')::json;
    body.options := case when wish.ordered is null then wish.options::json
        else (coalesce(wish.options, '{}')::jsonb || jsonb_build_object('ordered', wish.ordered))::json end;
    body.created_at := present;
    if tidemill.is_bounded(array[body.queue]) then
        first_sheaf := nextval('tidemill.sheaf');
        body.queue := case when tidemill.is_ordered(body) then body.queue else tidemill.route(body.queue, 1) end;
    end if;
    select p.* into answered from tidemill.put(
        body, due, (array_position(array['unfinished', 'period', 'forever'], wish.unique_scope) - 1)::int2,
        present + wish.unique_period_ms * interval '1 ms', wish.on_duplicate, coalesce(wish.force, false), present,
        '{}', null) p;
    if answered.lines_up then
        perform tidemill.line_up(array[answered.id], array[due], present);
    end if;
    if answered.is_new and first_sheaf is not null then
        perform tidemill.admit(body.queue, 1, body.priority, first_sheaf, present);
    end if;
    if wish.id is not null and answered.id = wish.id then
        perform tidemill.check_taken(body, coalesce(wish.queue, 'default'));
    end if;
    return answered.id;
end $$;

create function tidemill.enqueue_wish() returns trigger language plpgsql as $$
begin
    new.id := tidemill.put_wish(row(new.*)::tidemill.wish);
    return new;
end $$;

-- The view stands in the first schema of the search path, so that INSERT INTO tidemill_enqueue finds it;
-- in the schema tidemill when we may not create anything there.
do $$
declare
    place text := current_schema();
begin
    if place is null or not has_schema_privilege(place, 'create') then
        place := 'tidemill';
    end if;
    execute format('create view %I.tidemill_enqueue as select (null::tidemill.wish).* where false', place);
    execute format('create trigger enqueue instead of insert on %I.tidemill_enqueue '
        'for each row execute function tidemill.enqueue_wish()', place);
end $$;

-- tidemill.enqueue('send_welcome', '{"user": 42}', '{"queue": "mail", "delay_ms": 5000, "tags": ["new"]}'):
-- the options are the columns of the view and the options of a job, side by side. Answers the job's id.
create function tidemill.enqueue(kind text, payload text, options text default '{}') returns uuid
language plpgsql as $$
declare
    wish tidemill.wish;
    refused text := 'options_invalid';
    reason text;
    columns text[] := array['id', 'queue', 'priority', 'run_at', 'delay_ms', 'tenant', 'key', 'unique_key',
        'unique_scope', 'unique_period_ms', 'on_duplicate', 'force', 'ordered'];
begin
    begin
        perform tidemill.read_escapes(options);
        if json_typeof(options::json) = 'object' then
            refused := 'id_invalid';
            perform (options::json ->> 'id')::uuid;
            refused := 'options_invalid';
        end if;
        wish := json_populate_record(null::tidemill.wish, options::json);
    exception when data_exception then
        reason := sqlerrm;
    end;
    if reason is not null then
        perform tidemill.refuse(refused, 'the options cannot be read: ' || reason);
    end if;
    wish.kind := enqueue.kind;
    wish.payload := enqueue.payload;
    wish.options := (
        select json_object_agg(o.key, o.value) from json_each(options::json) o where not o.key = any (columns));
    return tidemill.put_wish(wish);
end $$;

create function tidemill.enqueue(kind text, payload json, options json default '{}') returns uuid
language sql as $$ select tidemill.enqueue($1, $2::text, $3::text) $$;

create function tidemill.enqueue(kind text, payload jsonb, options jsonb default '{}') returns uuid
language sql as $$ select tidemill.enqueue($1, $2::text, $3::text) $$;

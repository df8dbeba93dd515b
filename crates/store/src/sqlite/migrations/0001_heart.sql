-- The heart: jobs, who waits, who runs, what came of them, and the view that takes jobs from plain SQL.
--
-- Times are integer microseconds since 1970, ids are 16 bytes, states and bands are the numbers of
-- the core. What plain SQL runs (the view and its triggers) keeps to what SQLite 3.38 understands,
-- because it runs in the caller's program, with the caller's SQLite.

-- The body, written once. Only its key's policy may change it, and only while it waits.
create table tidemill_job (
    id blob not null primary key,
    kind text not null,
    queue text not null,
    priority integer not null,
    tenant text,
    key text,
    unique_key text,
    run_at integer not null, -- where its ready row stands, until it has an attempt; 0: where its flow's step was opened
    payload text not null,
    options text,
    created_at integer not null
) without rowid;

-- One row per job that waits for a slot or the clock. A claim deletes it. No tenant, and no key, is ''.
-- The band of a job that is held at a gate counts 10 more, so that no claim meets it; that of one which was laid aside
-- until the clock gets there, 20 more.
create table tidemill_ready (
    queue text not null,
    priority integer not null,
    tenant text not null,
    run_at integer not null,
    id blob not null,
    kind text not null,
    key text not null,
    spent integer not null, -- attempts spent
    lost integer not null, -- workers lost
    line integer not null default 0, -- 0 in line, 1 let through a gate, 2 held at `gate`, 3 laid aside
    gate text not null default '',
    primary key (queue, priority, tenant, run_at, id)
) without rowid;
-- What was let through a gate comes back to where it stood, which claims may have passed by.
create index tidemill_ready_let_through on tidemill_ready (queue, priority, run_at) where line = 1;
create index tidemill_ready_held on tidemill_ready (gate, queue, priority, tenant, run_at, id) where line = 2;
-- Whether anything of a tenant is due, however many of them wait for the clock. Most jobs have none, and no entry.
create index tidemill_ready_due on tidemill_ready (queue, priority, run_at) where tenant <> '';

-- One row per claim. Its key is the token; autoincrement never gives one twice.
create table tidemill_lease (
    token integer primary key autoincrement,
    worker blob not null,
    claimed_at integer not null,
    jobs blob not null, -- of each job not settled yet: id (16 bytes), spent (2), lost (2)
    cancels integer not null default 0, -- how many of them were called off, at most
    gates text -- those they are inside of, as JSON
);
-- No index by worker, which is asked for once a worker is gone: it would be one page more in every claim and settle.
create index tidemill_lease_called_off on tidemill_lease (worker) where cancels > 0;

-- Running jobs that were called off.
create table tidemill_cancel (
    token integer not null,
    id blob not null,
    reason text not null,
    primary key (token, id)
) without rowid;

-- What callers decided in transactions of their own: this job is done, so. The next settle of its attempt, or the rescue
-- of its lease, carries that out and takes the row away.
create table tidemill_decided (
    id blob not null primary key,
    token integer not null,
    output text not null,
    follow_ups text
) without rowid;

-- What became of a job; one row per finished job.
create table tidemill_outcome (
    id blob not null primary key,
    queue text not null,
    state integer not null,
    attempt integer not null,
    lost integer not null,
    token integer,
    worker blob,
    finished_at integer not null,
    retain_ms integer,
    keyed integer not null, -- 1: had a unique key; 2: forgotten but for its result, which the key keeps
    output text,
    error text
) without rowid;
create index tidemill_outcome_unwell on tidemill_outcome (state, id) where state > 4;

-- Attempts that did not finish their job, and those that killed it. The next_at of the latest one is where the job's
-- ready row stands, or its moved_at, if somebody has let the job go or put it elsewhere since. Without started_at, or
-- lost, the store wrote it, not the attempt.
create table tidemill_attempt (
    id blob not null,
    token integer not null,
    attempt integer not null,
    worker blob,
    started_at integer,
    ended_at integer not null,
    class text,
    error text,
    next_at integer,
    moved_at integer,
    primary key (id, token)
) without rowid;

-- Who holds a unique key, and the one job kept for after it.
create table tidemill_unique_key (
    key text not null primary key,
    id blob not null,
    next_id blob,
    scope text not null,
    until integer -- only of the scope 'period'
) without rowid;
create index tidemill_unique_key_next on tidemill_unique_key (next_id) where next_id is not null;
create index tidemill_unique_key_until on tidemill_unique_key (until) where until is not null;

-- Lines: jobs of one queue, tenant and key that run one at a time. The head waits for a slot or the clock,
-- runs, or is dead and blocks the others.
create table tidemill_line (
    queue text not null,
    tenant text not null, -- '' if they have none
    key text not null,
    head blob not null,
    primary key (queue, tenant, key)
) without rowid;

-- Those behind the head, in order. They have no ready row.
create table tidemill_line_waiting (
    number integer primary key,
    queue text not null,
    tenant text not null,
    key text not null,
    id blob not null unique
);
create index tidemill_line_waiting_line on tidemill_line_waiting (queue, tenant, key, number);

create table tidemill_dead (
    id blob not null primary key,
    kind text not null,
    queue text not null,
    tenant text,
    class text not null,
    error text not null,
    fingerprint text not null,
    attempt integer not null,
    died_at integer not null,
    triage integer not null default 0,
    redrives integer not null default 0,
    archived integer not null default 0
) without rowid;
create index tidemill_dead_latest on tidemill_dead (died_at, id);
-- What rules may redrive is looked for every few seconds.
create index tidemill_dead_new on tidemill_dead (died_at, id) where triage = 0 and not archived;

create table tidemill_note (
    number integer primary key,
    id blob not null,
    at integer not null,
    by text not null,
    text text not null
);
create index tidemill_note_id on tidemill_note (id);

create table tidemill_queue (
    name text not null primary key,
    rules text not null,
    version integer not null
) without rowid;

create table tidemill_redrive_rule (
    name text not null primary key,
    rule text not null
) without rowid;

create table tidemill_worker (
    id blob not null primary key,
    name text not null,
    queues text not null,
    kinds text not null,
    slots integer not null,
    reach integer not null, -- how many jobs it may hold at once: twice its slots, or what it asked for
    slots_of text not null, -- JSON: which of them a queue or pattern may take, where that is not all
    started_at integer not null,
    beat_at integer not null,
    lease_us integer -- how long after a beat it is given up, if it says so itself
) without rowid;

create table tidemill_duty (
    name text not null primary key,
    holder blob not null,
    until integer not null,
    since integer not null -- it has been its holder's without a gap
) without rowid;

-- What callers from outside show: of each only the hash of its secret. A name is that of one live credential at most,
-- which the statement that adds one sees to.
create table tidemill_credential (
    id blob not null primary key,
    name text not null,
    hash blob not null unique,
    role text not null,
    queues text not null, -- as JSON; none means all
    tenant text,
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    used_at integer -- a minute or so behind
) without rowid;

-- The bytes, because older SQLites cannot turn hexadecimal text into a blob.
create table tidemill_byte (
    number integer primary key,
    hex text not null unique,
    byte blob not null
);
with recursive byte (number) as (select 0 union all select number + 1 from byte where number < 255)
insert into tidemill_byte (number, hex, byte)
select number, printf('%02x', number), unhex(printf('%02x', number)) from byte;

-- A job on its way in: what was asked, in the store's words, and what is done about it. A row lives
-- for one statement, or until its receipt is read in the same transaction.
create table tidemill_inbox (
    number integer primary key,
    id blob not null,
    kind text not null,
    queue text not null,
    priority integer not null,
    tenant text,
    key text,
    unique_key text,
    scope text not null,
    until integer,
    on_duplicate text not null,
    force integer not null,
    run_at integer not null,
    payload text not null,
    options text,
    ordered integer not null, -- 1: it takes its turn in the line of its queue, tenant and key
    now integer not null,
    receipt text, -- a word of the library's, by which it finds its answers
    bounded integer not null, -- whether a full queue may refuse it: 0 no, 1 by itself, 2 the whole enqueue once it is written
    within text, -- JSON: the queues, by name or pattern, whose jobs it may be a duplicate of; null is all
    holder blob, -- who holds the key
    next_id blob, -- who is kept for after it
    due integer, -- where the holder waits, if it does
    spent integer,
    lost integer,
    act text -- write, keep, replace, refresh, join, reject, unreached, again
);

create view tidemill_enqueue as
select
    null as id, null as kind, null as payload, null as queue, null as priority, null as run_at,
    null as delay_ms, null as tenant, null as key, null as unique_key, null as unique_scope,
    null as unique_period_ms, null as on_duplicate, null as force, null as options, null as ordered,
    null as whole_key, null as now_us, null as receipt, null as bounded, null as within
where 0;

-- Checks and words: from what the caller wrote to what the store keeps. What the library sends, with
-- a receipt, it has checked itself, against limits that may be others.
create trigger tidemill_enqueue_insert instead of insert on tidemill_enqueue
begin
    select case
        when coalesce(new.kind, '') = ''
            then raise(abort, 'tidemill: name_empty: the kind is empty')
        when new.queue = '' then raise(abort, 'tidemill: name_empty: the queue is empty')
        when new.tenant = '' then raise(abort, 'tidemill: name_empty: the tenant is empty')
        when new.key = '' then raise(abort, 'tidemill: name_empty: the key is empty')
        when new.unique_key = '' then raise(abort, 'tidemill: name_empty: the unique key is empty')
        when length(cast(new.kind as blob)) > 200
            then raise(abort, 'tidemill: name_too_long: the kind has more than 200 bytes')
        when length(cast(new.queue as blob)) > 200
            then raise(abort, 'tidemill: name_too_long: the queue has more than 200 bytes')
        when length(cast(new.tenant as blob)) > 200
            then raise(abort, 'tidemill: name_too_long: the tenant has more than 200 bytes')
        when length(cast(new.key as blob)) > 200
            then raise(abort, 'tidemill: name_too_long: the key has more than 200 bytes')
        when length(cast(new.unique_key as blob)) > 500
            then raise(abort, 'tidemill: name_too_long: the unique key has more than 500 bytes')
        when names glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
            or instr(names, char(0)) > 0
            then raise(abort, 'tidemill: name_invalid: a name contains a control character')
        when new.kind <> trim(new.kind, blanks) or new.queue <> trim(new.queue, blanks)
            or new.tenant <> trim(new.tenant, blanks) or new.key <> trim(new.key, blanks)
            then raise(abort, 'tidemill: name_invalid: a name begins or ends with white space; leave that out')
        when substr(new.kind, 1, 9) = 'tidemill:' or substr(new.queue, 1, 9) = 'tidemill:'
            then raise(abort, 'tidemill: name_reserved: a kind or queue that begins with "tidemill:" is for Tidemill itself; choose another')
        when names glob '*[^' || char(1) || '-' || char(127) || ']*' and exists (
                -- What is not UTF-8 is read as something, which is written as other bytes.
                with recursive letter (at, code) as (
                    select 1, unicode(names)
                    union all
                    select at + 1, unicode(substr(names, at + 1)) from letter where code is not null
                )
                select 1 from letter where code is not null and char(code) <> substr(names, at, 1)
            )
            then raise(abort, 'tidemill: name_invalid: a name is not UTF-8')
        -- Most of what is in another encoding is read as U+FFFD; unless that is what it says.
        when instr(cast(new.payload as blob), x'efbfbd') = 0
                and cast(new.payload as text) glob '*' || char(65533) || '*'
            then raise(abort, 'tidemill: payload_not_json: the payload is not JSON: it is not UTF-8')
        when case typeof(new.id)
                when 'null' then 0
                when 'blob' then length(new.id) <> 16
                else length(replace(new.id, '-', '')) <> 32
                    or replace(new.id, '-', '') glob '*[^0-9A-Fa-f]*'
            end
            then raise(abort, 'tidemill: id_invalid: the id is not a UUID')
        when length(cast(new.payload as blob)) > 1048576
            then raise(abort, 'tidemill: payload_too_large: the payload has more than 1048576 bytes; store large data elsewhere and enqueue a reference to it')
        when not json_valid(cast(new.payload as text)) and exists (
                -- SQLite gives up at a thousand levels. So what it does not take may only be too deep: its brackets are
                -- counted, in a thousand pieces at most. Those within strings count too, and decide only which of two
                -- refusals it is. No json_error_position: the caller's SQLite may be older than that.
                with recursive piece (start, size, bytes, depth) as (
                    select 1, 1 + bytes / 1000, bytes, 0
                    from (select length(cast(new.payload as blob)) as bytes)
                    union all
                    select start + size, size, bytes, depth
                        + length(replace(replace(substr(cast(new.payload as blob), start, size), ']', ''), '}', ''))
                        - length(replace(replace(substr(cast(new.payload as blob), start, size), '[', ''), '{', ''))
                    from piece
                    where depth <= 64 and start <= bytes
                )
                select 1 from piece where depth > 64
            )
            then raise(abort, 'tidemill: payload_too_deep: the payload is nested deeper than 64 levels')
        when new.payload is not null and not json_valid(cast(new.payload as text))
            then raise(abort, 'tidemill: payload_not_json: the payload is not JSON')
        when length(cast(new.payload as text))
                - length(replace(replace(cast(new.payload as text), '[', ''), '{', '')) > 64 and exists (
                -- Only what has so many brackets can be so deep: it is looked at level by level.
                with recursive level (depth, value) as (
                    select 1, cast(new.payload as text)
                    union all
                    select level.depth + 1, each.value
                    from level, json_each(level.value) as each
                    where level.depth < 65 and each.type in ('object', 'array')
                )
                select 1 from level where depth = 65
            )
            then raise(abort, 'tidemill: payload_too_deep: the payload is nested deeper than 64 levels')
        when instr(replace(cast(new.payload as text), '\\', ''), '\u0000') > 0
            then raise(abort, 'tidemill: payload_nul: the payload contains the character U+0000, which databases cannot keep as text')
        when instr(lower(cast(new.payload as text)), '\ud') > 0 and exists (
                -- First halves written as U+0001 and second ones as U+0002, which JSON cannot hold as
                -- they are; two digits follow each. A first one needs a second one right behind it,
                -- a second one needs a first one right before it.
                select 1 from (
                    select '---' || replace(replace(replace(replace(replace(replace(replace(replace(
                        replace(lower(cast(new.payload as text)), '\\', '--'),
                        '\ud8', char(1)), '\ud9', char(1)), '\uda', char(1)), '\udb', char(1)),
                        '\udc', char(2)), '\udd', char(2)), '\ude', char(2)), '\udf', char(2)) as text
                )
                where text glob '*' || char(1) || '??[^' || char(2) || ']*'
                    or text glob '*[^' || char(1) || ']??' || char(2) || '*'
            )
            then raise(abort, 'tidemill: payload_surrogate: the payload contains half of a surrogate pair: it is not Unicode text')
        when new.options is not null
                and (not json_valid(new.options) or json_type(new.options) <> 'object')
            then raise(abort, 'tidemill: options_invalid: the options are not a JSON object')
        when instr(replace(cast(new.options as text), '\\', ''), '\u0000') > 0
            then raise(abort, 'tidemill: options_invalid: the options contain the character U+0000, which databases cannot keep as text')
        when new.options is not null and exists (
                select 1 from json_each(new.options)
                where key not in (
                    'retry', 'run_timeout_ms', 'start_within_ms', 'finish_within_ms', 'tags',
                    'trace', 'retain_ms', 'ordered'
                )
            )
            then raise(abort, 'tidemill: word_unknown: an option is one of retry, run_timeout_ms, start_within_ms, finish_within_ms, tags, trace, retain_ms, ordered')
        when new.options is not null and (
                exists (
                    select 1 from json_each(new.options)
                    where type <> case key
                        when 'retry' then 'object' when 'tags' then 'array' when 'trace' then 'text'
                        when 'ordered' then 'text' else 'integer'
                    end or (type = 'integer' and (typeof(value) <> 'integer' or value < 0))
                )
                or exists (select 1 from json_each(new.options, '$.tags') where type <> 'text')
            )
            then raise(abort, 'tidemill: options_invalid: an option has a value that no worker could read')
        when exists (select 1 from json_each(new.options) where type = 'integer' and value > 31622400000000)
            then raise(abort, 'tidemill: duration_invalid: an option is not a number of milliseconds below 1000 years')
        when exists (
                select 1 from json_each(new.options, '$.tags')
                where key >= 32 or length(cast(value as blob)) not between 1 and 200
            )
            then raise(abort, 'tidemill: options_invalid: there are at most 32 tags, of 1 to 200 bytes each')
        when exists (
                select 1 from json_each(new.options, '$.tags')
                where value <> trim(value, blanks)
                    or value glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
            )
            then raise(abort, 'tidemill: name_invalid: a tag contains a control character, or begins or ends with white space')
        when not (
                -- As W3C writes it; a later version may say more behind it.
                select length(cast(value as blob)) <= 1024
                    and value not glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
                    and substr(text, 3, 1) || substr(text, 36, 1) || substr(text, 53, 1) = '---'
                    and length(text) >= 55
                    and substr(text, 1, 2) || substr(text, 4, 32) || substr(text, 37, 16) || substr(text, 54, 2)
                        not glob '*[^0-9a-f]*'
                    and text not glob 'ff*' and (length(text) = 55 or substr(text, 56, 1) = '-' and text not glob '00*')
                    and trim(substr(text, 4, 32), '0') <> '' and trim(substr(text, 37, 16), '0') <> ''
                from (
                    select value, trim(value) as text
                    from (select json_extract(new.options, '$.trace') as value)
                )
            )
            then raise(abort, 'tidemill: trace_invalid: the trace context is not a traceparent; one is like 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')
        when exists (
                select 1 from json_each(new.options, '$.retry')
                where not case
                    when key in ('attempts_max', 'ambiguous_max') then typeof(value) = 'integer' and value between 1 and 65535
                    else key = 'backoff' and type = 'object'
                end
            ) or exists (
                select 1 from json_each(new.options, '$.retry.backoff')
                where not case key
                    when 'jitter' then value in ('full', 'equal', 'none')
                    when 'delays_ms' then type = 'array'
                    when 'type' then value in ('exponential', 'decorrelated', 'fixed', 'custom')
                    else key in ('base_ms', 'cap_ms', 'delay_ms') and typeof(value) = 'integer' and value >= 0
                end
            ) or exists (
                select 1 from json_each(new.options, '$.retry.backoff.delays_ms')
                where key >= 100 or typeof(value) <> 'integer' or value < 0
            ) or json_type(new.options, '$.retry.backoff') is not null and not coalesce(
                case json_extract(new.options, '$.retry.backoff.type')
                    when 'fixed' then json_type(new.options, '$.retry.backoff.delay_ms') is not null
                    when 'custom' then json_type(new.options, '$.retry.backoff.delays_ms[0]') is not null
                    else json_extract(new.options, '$.retry.backoff.base_ms')
                        <= json_extract(new.options, '$.retry.backoff.cap_ms')
                end, 0)
            then raise(abort, 'tidemill: options_invalid: the option retry has attempts_max and ambiguous_max of 1 to 65535, and as backoff one of {"type":"exponential","base_ms":1000,"cap_ms":3600000,"jitter":"full"}, {"type":"decorrelated","base_ms":1000,"cap_ms":3600000}, {"type":"fixed","delay_ms":1000}, {"type":"custom","delays_ms":[1000]}')
        when json_extract(new.options, '$.run_timeout_ms') = 0
            then raise(abort, 'tidemill: rule_invalid: the rule of the run timeout is refused: 0 would end every attempt as it begins; give at least 1 ms')
        when json_extract(new.options, '$.start_within_ms') = 0
            then raise(abort, 'tidemill: rule_invalid: the rule of the deadline to start is refused: 0 would end the job before it begins; give at least 1 ms')
        when json_extract(new.options, '$.finish_within_ms') = 0
            then raise(abort, 'tidemill: rule_invalid: the rule of the deadline to finish is refused: 0 would end the job before it begins; give at least 1 ms')
        when new.ordered not in ('block', 'skip')
                or json_extract(new.options, '$.ordered') not in ('block', 'skip')
            then raise(abort, 'tidemill: word_unknown: ordered is one of block, skip')
        when new.key is null and coalesce(new.ordered, json_extract(new.options, '$.ordered')) is not null
            then raise(abort, 'tidemill: key_missing: the job asks for order but has no key; give the key whose jobs are to run one after the other, such as order:42, or do not ask for order')
        when lower(cast(new.priority as text))
                not in ('urgent', 'high', 'normal', 'low', '0', '1', '2', '3')
            then raise(abort, 'tidemill: word_unknown: the priority is one of urgent, high, normal, low, or 0 to 3')
        when new.unique_scope not in ('unfinished', 'period', 'forever')
            then raise(abort, 'tidemill: word_unknown: the unique scope is one of unfinished, period, forever')
        when new.on_duplicate
                not in ('reject', 'join', 'replace', 'debounce', 'throttle', 'run_once_more')
            then raise(abort, 'tidemill: word_unknown: on_duplicate is one of reject, join, replace, debounce, throttle, run_once_more')
        when new.delay_ms is not null
                and (typeof(new.delay_ms) <> 'integer' or new.delay_ms not between 0 and 3155760000000)
            then raise(abort, 'tidemill: duration_invalid: the delay is not a number of milliseconds below 100 years')
        when new.unique_period_ms is null and new.unique_scope = 'period'
            then raise(abort, 'tidemill: duration_invalid: the scope period needs unique_period_ms')
        when new.unique_period_ms is not null and (
                typeof(new.unique_period_ms) <> 'integer'
                or new.unique_period_ms not between 0 and 3155760000000
            )
            then raise(abort, 'tidemill: duration_invalid: the period is not a number of milliseconds below 100 years')
        when new.unique_period_ms = 0
            then raise(abort, 'tidemill: rule_invalid: the rule of the scope of the unique key is refused: 0 would hold it for no time at all; give at least 1 ms')
        when new.unique_key is null and new.on_duplicate is not null
            then raise(abort, 'tidemill: wish_contradiction: the wishes of the job contradict each other: on_duplicate is given and unique_key is not; duplicates need something that makes them the same')
        when lower(cast(new.force as text))
                not in ('1', 'true', 't', 'yes', 'y', 'on', '0', 'false', 'f', 'no', 'n', 'off')
            then raise(abort, 'tidemill: word_unknown: force is one of true, false')
        when new.unique_key is null
                and lower(cast(new.force as text)) in ('1', 'true', 't', 'yes', 'y', 'on')
            then raise(abort, 'tidemill: wish_contradiction: the wishes of the job contradict each other: force is true and unique_key is not given; duplicates need something that makes them the same')
        when new.unique_key is null and new.unique_scope is not null
            then raise(abort, 'tidemill: wish_contradiction: the wishes of the job contradict each other: unique_scope is given and unique_key is not; duplicates need something that makes them the same')
        when new.unique_key is null and new.unique_period_ms is not null
            then raise(abort, 'tidemill: wish_contradiction: the wishes of the job contradict each other: unique_period_ms is given and unique_key is not; duplicates need something that makes them the same')
        when new.delay_ms is not null and new.run_at is not null
            then raise(abort, 'tidemill: wish_contradiction: the wishes of the job contradict each other: delay_ms and run_at are both given; a job starts after a delay or at a time, not both')
        when new.run_at is not null and not case
                when typeof(new.run_at) in ('text', 'blob') and new.run_at glob '*[^0-9]*'
                    then new.run_at glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'
                        and julianday(new.run_at) is not null
                -- A number this small is in seconds or milliseconds.
                else length(new.run_at) > 0
                    and (cast(new.run_at as integer) = 0 or cast(new.run_at as integer) >= 100000000000000)
            end
            then raise(abort, 'tidemill: time_invalid: run_at is a time as in RFC 3339, or microseconds since 1970')
    end
    from (
        select new.kind || ' ' || coalesce(new.queue, '') || ' ' || coalesce(new.tenant, '')
            || ' ' || coalesce(new.key, '') || ' ' || coalesce(new.unique_key, '') as names,
            char(
                32, 160, 5760, 8192, 8193, 8194, 8195, 8196, 8197, 8198, 8199, 8200, 8201, 8202, 8232, 8233, 8239,
                8287, 12288
            ) as blanks
    )
    where new.receipt is null;

    insert into tidemill_inbox (
        id, kind, queue, priority, tenant, key, unique_key, scope, until, on_duplicate, force,
        run_at, payload, options, ordered, now, receipt, bounded, within
    )
    select
        case
            when typeof(new.id) = 'blob' then new.id
            when new.id is not null then cast(
                (select byte from tidemill_byte where hex = substr(at.hex, 1, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 3, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 5, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 7, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 9, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 11, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 13, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 15, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 17, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 19, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 21, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 23, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 25, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 27, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 29, 2))
                || (select byte from tidemill_byte where hex = substr(at.hex, 31, 2))
                as blob
            )
            -- A UUIDv7: 48 bits of milliseconds, the version, randomness, the variant, randomness.
            else cast(
                (select byte from tidemill_byte where number = (at.now / 1000 >> 40) & 255)
                || (select byte from tidemill_byte where number = (at.now / 1000 >> 32) & 255)
                || (select byte from tidemill_byte where number = (at.now / 1000 >> 24) & 255)
                || (select byte from tidemill_byte where number = (at.now / 1000 >> 16) & 255)
                || (select byte from tidemill_byte where number = (at.now / 1000 >> 8) & 255)
                || (select byte from tidemill_byte where number = (at.now / 1000) & 255)
                || (select byte from tidemill_byte where number = 112 + (random() & 15))
                || randomblob(1)
                || (select byte from tidemill_byte where number = 128 + (random() & 63))
                || randomblob(7)
                as blob
            )
        end,
        cast(new.kind as text),
        coalesce(
            (
                select divert from tidemill_bound
                where queue = coalesce(cast(new.queue as text), 'default') and depth >= depth_max
                    -- One that is judged with others was sent where it goes.
                    and coalesce(new.bounded, 1) = 1
                    -- Jobs that take turns stay in their lines.
                    and (new.key is null or coalesce(new.ordered, json_extract(new.options, '$.ordered')) is null)
            ),
            cast(new.queue as text),
            'default'
        ),
        case lower(cast(new.priority as text))
            when 'urgent' then 0 when '0' then 0
            when 'high' then 1 when '1' then 1
            when 'low' then 3 when '3' then 3
            else 2
        end,
        cast(new.tenant as text),
        cast(new.key as text),
        coalesce(new.whole_key, new.kind || '=' || new.unique_key || coalesce(char(31) || new.tenant, '')),
        coalesce(new.unique_scope, 'unfinished'),
        iif(new.unique_scope = 'period', at.now + new.unique_period_ms * 1000, null),
        coalesce(new.on_duplicate, 'reject'),
        coalesce(lower(cast(new.force as text)), '0') in ('1', 'true', 't', 'yes', 'y', 'on'),
        max(at.now, case
            when new.run_at is null then at.now + coalesce(new.delay_ms, 0) * 1000
            when typeof(new.run_at) in ('text', 'blob') and new.run_at glob '*[^0-9]*'
                then cast(round((julianday(new.run_at) - 2440587.5) * 86400000) as integer) * 1000
            else cast(new.run_at as integer)
        end),
        coalesce(trim(cast(new.payload as text), char(9, 10, 13, 32)), 'null'),
        nullif(
            iif(
                new.ordered is null, json(new.options),
                json_set(coalesce(new.options, '{}'), '$.ordered', cast(new.ordered as text))
            ),
            '{}'
        ),
        new.key is not null
            and coalesce(new.ordered, json_extract(new.options, '$.ordered')) is not null,
        at.now,
        new.receipt,
        coalesce(new.bounded, 1),
        iif(new.receipt is null, null, new.within)
    from (
        select
            coalesce(
                new.now_us,
                cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000
            ) as now,
            lower(replace(new.id, '-', '')) as hex
    ) as at;
end;

-- The verdict on a job that comes in. Each act has a trigger of its own, below.
create trigger tidemill_inbox_insert after insert on tidemill_inbox
begin
    select raise(abort, 'tidemill: due_too_far: the due time is more than 20 years away')
    where new.run_at > new.now + 632448000000000 and new.receipt is null;
    select raise(abort, 'tidemill: wish_contradiction: the wishes of the job contradict each other: it is not due before its deadline to finish (finish_within_ms), which counts from its enqueue, is over, and could only die')
    where new.receipt is null and new.run_at > new.now
        and json_extract(new.options, '$.finish_within_ms') * 1000 <= new.run_at - new.now;
    -- Sent again it is there already. Of a job that took over what a duplicate said only the key tells that it is the same,
    -- and a full queue may have sent either to another one.
    select raise(abort, 'tidemill: id_taken: another job has the id that was given, and nothing was enqueued; give this one an id of its own, or none')
    from tidemill_job as job
    where new.receipt is null and job.id = new.id and not (
        job.kind = new.kind and job.tenant is new.tenant and (
            job.unique_key = new.unique_key
            or (
                job.payload = new.payload or json_valid(job.payload) and json(job.payload) = json(new.payload)
            ) and (
                job.queue = new.queue or exists (
                    select 1 from tidemill_bound
                    where queue = new.queue and divert = job.queue or queue = job.queue and divert = new.queue
                )
            )
        ) is true
    );
    -- The holder of the key has finished (it has an outcome), waits (it has a ready row, or a place in
    -- a line), or runs, as do runs that have begun, also while they wait.
    update tidemill_inbox
    set (holder, next_id, due, spent, lost, act) = (
        select
            held.id, held.next_id, ready.run_at, ready.spent, ready.lost,
            case
                when exists (select 1 from tidemill_job where id = new.id) then 'again'
                when held.id is null then 'write'
                -- Of a job that it may not be a duplicate of nothing is told, and it stays as it is.
                when new.within is not null and exists (
                    select 1 from tidemill_job as other
                    where other.id in (held.id, held.next_id) and not exists (
                        select 1 from json_each(new.within) as own
                        where own.value = other.queue or (
                            substr(own.value, -1) = '*'
                            and substr(other.queue, 1, length(own.value) - 1)
                                = substr(own.value, 1, length(own.value) - 1)
                        )
                    )
                ) then 'unreached'
                when new.force then 'write'
                when new.on_duplicate = 'reject' then 'reject'
                when outcome.id is not null then 'join'
                when new.on_duplicate in ('join', 'throttle') then 'join'
                when coalesce(ready.id, line.id) is not null
                    and not exists (select 1 from tidemill_under_way where id = held.id)
                    then iif(new.on_duplicate = 'run_once_more', 'join', 'replace')
                when new.on_duplicate = 'replace' then 'join'
                when held.next_id is null then 'keep'
                else 'refresh'
            end
        from (select new.unique_key as key) as wish
        left join tidemill_unique_key as held
            on held.key = wish.key and (held.until is null or held.until > new.now)
        left join tidemill_outcome as outcome on outcome.id = held.id
        left join tidemill_job as job on job.id = held.id
        left join tidemill_ready as ready
            on ready.queue = job.queue and ready.priority in (job.priority, job.priority + 10, job.priority + 20)
            and ready.tenant = coalesce(job.tenant, '') and ready.id = job.id
            and ready.run_at = coalesce(
                (
                    select coalesce(moved_at, next_at) from tidemill_attempt
                    where id = job.id order by token desc limit 1
                ),
                job.run_at
            )
        left join tidemill_line_waiting as line on line.id = held.id
    )
    where number = new.number;
    delete from tidemill_inbox where number = new.number and new.receipt is null;
end;

-- Three acts that several triggers and the library share. SQLite has no procedures: to insert the id of
-- a job is to call one.

-- Start: a job whose body is there waits for a slot or the clock; one that asks for order and is not
-- the first of its line waits behind the others, without a ready row.
create view tidemill_start as select null as id, null as now where 0;
create trigger tidemill_start_insert instead of insert on tidemill_start
begin
    insert into tidemill_line (queue, tenant, key, head)
    select job.queue, coalesce(job.tenant, ''), job.key, job.id
    from tidemill_job as job
    where job.id = new.id and job.key is not null
        and json_extract(job.options, '$.ordered') is not null
        and not exists (
            select 1 from tidemill_line
            where queue = job.queue and tenant = coalesce(job.tenant, '') and key = job.key
        );
    insert into tidemill_line_waiting (queue, tenant, key, id)
    select line.queue, line.tenant, line.key, job.id
    from tidemill_job as job
    join tidemill_line as line
        on line.queue = job.queue and line.tenant = coalesce(job.tenant, '') and line.key = job.key
    where job.id = new.id and line.head <> job.id
        and json_extract(job.options, '$.ordered') is not null;
    update tidemill_job set run_at = max(run_at, new.now) where id = new.id;
    update tidemill_attempt set moved_at = (select run_at from tidemill_job where id = new.id)
    where id = new.id and token = (select max(token) from tidemill_attempt where id = new.id);
    insert into tidemill_ready (queue, priority, tenant, run_at, id, kind, key, spent, lost)
    select job.queue, job.priority, coalesce(job.tenant, ''), job.run_at, job.id, job.kind, coalesce(job.key, ''), 0, 0
    from tidemill_job as job
    where job.id = new.id and not exists (
        select 1
        from tidemill_line_waiting as place
        join tidemill_line as line
            on line.queue = place.queue and line.tenant = place.tenant and line.key = place.key
        where place.id = job.id and line.head <> job.id
    );
    insert into tidemill_count (queue, tenant, came, went, now)
    select job.queue, coalesce(job.tenant, ''), 1, 0, new.now
    from tidemill_job as job
    where job.id = new.id and not exists (
        select 1
        from tidemill_line_waiting as place
        join tidemill_line as line
            on line.queue = place.queue and line.tenant = place.tenant and line.key = place.key
        where place.id = job.id and line.head <> job.id
    );
end;

-- Leave: a job that has ended, or goes elsewhere, leaves its line; if it was the first, the next one starts.
create view tidemill_leave as select null as id, null as now where 0;
create trigger tidemill_leave_insert instead of insert on tidemill_leave
begin
    -- It counts as one that came and went. Only one that comes to the head of its line has not come anew.
    insert into tidemill_count (queue, tenant, came, went, now)
    select queue, '', 1, 1, new.now from tidemill_line_waiting where id = new.id;
    delete from tidemill_line_waiting where id = new.id;
    delete from tidemill_line
    where head = new.id
        and (queue, tenant, key) = (select queue, coalesce(tenant, ''), key from tidemill_job where id = new.id)
        and not exists (
            select 1 from tidemill_line_waiting as next
            where next.queue = tidemill_line.queue and next.tenant = tidemill_line.tenant
                and next.key = tidemill_line.key
        );
    update tidemill_line
    set head = (
        select next.id from tidemill_line_waiting as next
        where next.queue = tidemill_line.queue and next.tenant = tidemill_line.tenant
            and next.key = tidemill_line.key
        order by next.number
        limit 1
    )
    where head = new.id
        and (queue, tenant, key) = (select queue, coalesce(tenant, ''), key from tidemill_job where id = new.id);
    -- Only a new head still has the row by which it waited.
    insert into tidemill_start (id, now)
    select place.id, new.now
    from tidemill_job as job
    join tidemill_line as line
        on line.queue = job.queue and line.tenant = coalesce(job.tenant, '') and line.key = job.key
    join tidemill_line_waiting as place on place.id = line.head
    where job.id = new.id;
    delete from tidemill_line_waiting
    where id = (
        select line.head
        from tidemill_job as job
        join tidemill_line as line
            on line.queue = job.queue and line.tenant = coalesce(job.tenant, '') and line.key = job.key
        where job.id = new.id
    );
end;

-- Wish: a job takes over the wishes of whoever replaces it. What of its options is no wish stays: who started it, where
-- it stands.
create view tidemill_wish as select null as id, null as options where 0;
create trigger tidemill_wish_insert instead of insert on tidemill_wish
begin
    update tidemill_job
    set options = nullif(
        json_patch(
            json_remove(coalesce(new.options, '{}'), '$.parent', '$.origins', '$.turn', '$.flow'),
            (
                select json_group_object(own.key, json_extract(tidemill_job.options, '$.' || own.key))
                from json_each(tidemill_job.options) as own
                where own.key in ('parent', 'origins', 'turn', 'flow')
            )
        ),
        '{}'
    )
    where id = new.id;
end;

-- Write: the job waits, and its key, if it has one, is its own.
create trigger tidemill_inbox_write after update of act on tidemill_inbox when new.act = 'write'
begin
    -- Whoever is kept for after an old holder must not be lost when the key changes hands.
    insert into tidemill_start (id, now)
    select next_id, new.now from tidemill_unique_key
    where key = new.unique_key and next_id is not null;
    delete from tidemill_unique_key where key = new.unique_key;
    insert into tidemill_unique_key (key, id, scope, until)
    select new.unique_key, new.id, new.scope, new.until where new.unique_key is not null;
    insert into tidemill_job (
        id, kind, queue, priority, tenant, key, unique_key, run_at, payload, options, created_at
    )
    values (
        new.id, new.kind, new.queue, new.priority, new.tenant, new.key, new.unique_key, new.run_at,
        new.payload, new.options, new.now
    );
    insert into tidemill_ready (queue, priority, tenant, run_at, id, kind, key, spent, lost)
    select new.queue, new.priority, coalesce(new.tenant, ''), new.run_at, new.id, new.kind, coalesce(new.key, ''), 0, 0
    where not new.ordered;
    insert into tidemill_count (queue, tenant, came, went, now)
    select new.queue, coalesce(new.tenant, ''), 1, 0, new.now where not new.ordered;
    insert into tidemill_start (id, now) select new.id, new.now where new.ordered;
end;

-- Keep: the body is there, blocked, until the holder has finished.
create trigger tidemill_inbox_keep after update of act on tidemill_inbox when new.act = 'keep'
begin
    update tidemill_unique_key set next_id = new.id where key = new.unique_key;
    insert into tidemill_job (
        id, kind, queue, priority, tenant, key, unique_key, run_at, payload, options, created_at
    )
    values (
        new.id, new.kind, new.queue, new.priority, new.tenant, new.key, new.unique_key, new.run_at,
        new.payload, new.options, new.now
    );
end;

-- Replace: the holder takes everything over, and its ready row moves. In a line it keeps its place,
-- unless it goes to another.
create trigger tidemill_inbox_replace after update of act on tidemill_inbox when new.act = 'replace'
begin
    insert into tidemill_count (queue, tenant, came, went, now)
    select queue, coalesce(tenant, ''), 0, 1, new.now from tidemill_job
    where id = new.holder and new.due is not null;
    delete from tidemill_ready
    where queue = (select queue from tidemill_job where id = new.holder)
        and priority in (
            select priority from tidemill_job where id = new.holder
            union all select priority + 10 from tidemill_job where id = new.holder
            union all select priority + 20 from tidemill_job where id = new.holder
        )
        and tenant = (select coalesce(tenant, '') from tidemill_job where id = new.holder)
        and run_at = new.due and id = new.holder;
    insert into tidemill_leave (id, now)
    select job.id, new.now from tidemill_job as job
    where job.id = new.holder and job.key is not null
        and json_extract(job.options, '$.ordered') is not null
        and not (
            new.ordered and job.queue = new.queue and job.tenant is new.tenant and job.key = new.key
        );
    update tidemill_job
    set kind = new.kind, queue = new.queue, priority = new.priority, tenant = new.tenant,
        key = new.key, run_at = new.run_at, payload = new.payload
    where id = new.holder;
    insert into tidemill_wish (id, options) values (new.holder, new.options);
    update tidemill_attempt set moved_at = new.run_at
    where id = new.holder
        and token = (select max(token) from tidemill_attempt where id = new.holder);
    insert into tidemill_ready (queue, priority, tenant, run_at, id, kind, key, spent, lost)
    select
        new.queue, new.priority, coalesce(new.tenant, ''), new.run_at, new.holder, new.kind, coalesce(new.key, ''),
        new.spent, new.lost
    where new.due is not null and (not new.ordered or exists (
        select 1 from tidemill_line
        where queue = new.queue and tenant = coalesce(new.tenant, '') and key = new.key and head = new.holder
    ));
    insert into tidemill_count (queue, tenant, came, went, now)
    select new.queue, coalesce(new.tenant, ''), 1, 0, new.now
    where new.due is not null and (not new.ordered or exists (
        select 1 from tidemill_line
        where queue = new.queue and tenant = coalesce(new.tenant, '') and key = new.key and head = new.holder
    ));
    -- It came from a place in a line, or goes to one.
    insert into tidemill_start (id, now)
    select new.holder, new.now
    where (new.due is null or new.ordered)
        and not exists (select 1 from tidemill_line_waiting where id = new.holder)
        and not exists (
            select 1 from tidemill_line
            where queue = new.queue and tenant = coalesce(new.tenant, '') and key = new.key and head = new.holder
        );
end;

-- Refresh: the one that is kept takes the newer payload; debounced, its time counts anew.
create trigger tidemill_inbox_refresh after update of act on tidemill_inbox when new.act = 'refresh'
begin
    update tidemill_job
    set payload = new.payload, key = new.key, run_at = iif(new.on_duplicate = 'debounce', new.run_at, run_at)
    where id = new.next_id;
    insert into tidemill_wish (id, options) values (new.next_id, new.options);
end;

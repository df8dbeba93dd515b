-- Depth: how many jobs wait in a queue, counted as they come and go, and the bounds judged by it.
--
-- A counter that every enqueue and claim updates would be one row for which all of them wait. So each statement that
-- changes `ready` appends one delta per queue and tenant (triggers, below), which nobody waits for, and now and then
-- one of us folds the deltas into the counters. The depth of a queue is its counter and its deltas; both are read by
-- one snapshot, so it is exact, also while somebody folds: what a transaction did counts from its commit on.

-- What of the rules is needed here. All null where a rule has no bound and no watermarks.
alter table tidemill.queue
    add column depth_max int8,
    add column overflow text,
    add column wait_ms int8,
    add column divert text,
    add column high_water int8,
    add column low_water int8;
create index queue_bounded on tidemill.queue (name) where depth_max is not null;

-- Jobs that ever came into a queue and went out of it, and those that were dropped, which are in neither number any
-- more; `above_since`: when its high watermark was reached; `changed_at`: when a job came or went last.
create table tidemill.depth (
    queue text collate "C" primary key,
    came int8 not null,
    went int8 not null,
    dropped int8 not null default 0,
    above_since timestamptz,
    changed_at timestamptz
) with (fillfactor = 50);

create table tidemill.tenant_depth (
    queue text collate "C" not null,
    tenant text collate "C" not null,
    depth int8 not null,
    primary key (queue, tenant)
) with (fillfactor = 50);

create table tidemill.depth_delta (
    queue text collate "C" not null,
    tenant text collate "C" not null,
    came int8 not null,
    went int8 not null,
    dropped int8 not null default 0,
    at timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, vacuum_truncate = off);

-- What a queue had counted at a moment, taken when that has changed: for its rates.
create table tidemill.depth_sample (
    queue text collate "C" not null,
    at timestamptz not null,
    came int8 not null,
    went int8 not null,
    primary key (queue, at)
);

insert into tidemill.depth (queue, came, went)
select n.queue, sum(n.jobs), 0
from (
    select r.queue, cardinality(r.ids) - r.taken as jobs from tidemill.ready r
    union all
    select w.queue, 1 from tidemill.line_waiting w
) n
group by n.queue;
insert into tidemill.tenant_depth (queue, tenant, depth)
select r.queue, r.tenant, sum(cardinality(r.ids) - r.taken) from tidemill.ready r where r.tenant <> ''
group by r.queue, r.tenant;

-- Counting: whatever changes `ready`, by whichever way, is counted in its own transaction, once per statement.

create function tidemill.count_came() returns trigger language plpgsql as $$
begin
    insert into tidemill.depth_delta (queue, tenant, came, went)
    select n.queue, n.tenant, sum(cardinality(n.ids) - n.taken), 0 from new_rows n group by n.queue, n.tenant;
    return null;
end $$;

create function tidemill.count_went() returns trigger language plpgsql as $$
begin
    insert into tidemill.depth_delta (queue, tenant, came, went)
    select o.queue, o.tenant, 0, sum(cardinality(o.ids) - o.taken) from old_rows o group by o.queue, o.tenant;
    return null;
end $$;

create function tidemill.count_changed() returns trigger language plpgsql as $$
begin
    insert into tidemill.depth_delta (queue, tenant, came, went)
    select c.queue, c.tenant, greatest(sum(c.jobs), 0), greatest(-sum(c.jobs), 0)
    from (
        select n.queue, n.tenant, cardinality(n.ids) - n.taken as jobs from new_rows n
        union all
        select o.queue, o.tenant, o.taken - cardinality(o.ids) from old_rows o
    ) c
    group by c.queue, c.tenant having sum(c.jobs) <> 0;
    return null;
end $$;

create trigger count_came after insert on tidemill.ready referencing new table as new_rows
for each statement execute function tidemill.count_came();
create trigger count_went after delete on tidemill.ready referencing old table as old_rows
for each statement execute function tidemill.count_went();
create trigger count_changed after update on tidemill.ready referencing old table as old_rows new table as new_rows
for each statement execute function tidemill.count_changed();

-- Jobs that wait behind another of their line count for their queue. One that comes to its head counts as it did.
create function tidemill.count_lined() returns trigger language plpgsql as $$
begin
    insert into tidemill.depth_delta (queue, tenant, came, went)
    select c.queue, '', case tg_op when 'INSERT' then count(*) else -count(*) end, 0 from changed c group by c.queue;
    return null;
end $$;

create trigger count_lined after insert on tidemill.line_waiting referencing new table as changed
for each statement execute function tidemill.count_lined();
create trigger count_unlined after delete on tidemill.line_waiting referencing old table as changed
for each statement execute function tidemill.count_lined();

-- How many jobs wait in a queue, by the snapshot of the statement that asks.
create function tidemill.depth_of(of_queue text) returns int8 language sql stable as $$
    select (coalesce((select d.came - d.went from tidemill.depth d where d.queue = of_queue), 0)
        + coalesce((select sum(d.came - d.went) from tidemill.depth_delta d where d.queue = of_queue), 0))::int8
$$;

-- Whether a name or a pattern, which ends in '*', means a queue.
create function tidemill.means(name text, of_queue text) returns boolean language sql immutable as $$
    select name = of_queue or (right(name, 1) = '*' and starts_with(of_queue, left(name, -1)))
$$;

-- The rules of a queue: those of its name, or else of the longest pattern that means it.
create function tidemill.rule_of(of_queue text) returns tidemill.queue language sql stable as $$
    select q from tidemill.queue q where tidemill.means(q.name, of_queue)
    order by q.name = of_queue desc, length(q.name) desc limit 1
$$;

-- Whether any of these queues may have a bound. Costs a look at an empty index where no queue has one.
create function tidemill.is_bounded(queues text[]) returns boolean language sql stable as $$
    select exists (
        select from tidemill.queue q
        where q.depth_max is not null and exists (select from unnest(queues) n where tidemill.means(q.name, n)))
$$;

-- Where so many jobs for a queue go: to another one, if its rule says so and they do not fit.
create function tidemill.route(of_queue text, jobs int8) returns text language plpgsql stable as $$
declare
    rule tidemill.queue := tidemill.rule_of(of_queue);
begin
    if rule.divert is not null and tidemill.depth_of(of_queue) + jobs > rule.depth_max then
        return rule.divert;
    end if;
    return of_queue;
end $$;

-- In how many ms a queue may have room for so many jobs, by what went out of it in the last minute.
-- As core's depth.rs reckons.
create function tidemill.retry_after_ms(of_queue text, excess int8, present timestamptz) returns int8
language sql stable as $$
    select coalesce((
        select case
            when s.at >= present then 10000
            when s.went >= n.went then 60000
            else least(60000, greatest(1000, 1000 * greatest(excess, 1)::float8 * least(60,
                extract(epoch from present - s.at)::float8) / (n.went - s.went)))
        end::int8
        from (select s.* from tidemill.depth_sample s where s.queue = of_queue
            order by s.at <= present - interval '1 minute' desc,
                case when s.at <= present - interval '1 minute' then s.at end desc, s.at
            limit 1) s,
            (select coalesce((select d.went from tidemill.depth d where d.queue = of_queue), 0)
                + coalesce((select sum(d.went) from tidemill.depth_delta d where d.queue = of_queue), 0) as went) n
    ), 10000)
$$;

-- Whether newer jobs never push this one out: it takes turns, or a run waits for its end. Runs come to it with their
-- tables.
create function tidemill.stays(body tidemill.job) returns boolean language sql stable as $$
    select tidemill.is_ordered($1) or ($1).options ->> 'parent' is not null
$$;

-- Cancels the jobs of the lowest bands, none above `band`, that have been due longest, to make room for newer ones,
-- whose sheaves are numbered from `first` on. Leaves alone what others hold, and jobs that stay, of which it passes by a
-- thousand in a row at most. Answers how many.
create function tidemill.drop_oldest(of_queue text, wanted int8, band int2, first int8, present timestamptz)
returns int8 language plpgsql as $$
declare
    places int8[];
    place int8;
    sheaf tidemill.ready;
    victims uuid[];
    keys text[];
    missing int8 := wanted;
begin
    for lowest in reverse 3..band loop
        places := array(
            select c.seq from (
                (select r.seq, r.run_at from (
                    select r.seq, r.run_at, r.ids[r.taken + 1] as id from tidemill.ready r
                    where r.queue = of_queue and r.priority = lowest and r.tenant = '' and r.line < 2 and r.seq < first
                    order by r.run_at limit missing + 1000
                ) r
                where not exists (select from tidemill.job j where j.id = r.id and tidemill.stays(j))
                order by r.run_at limit missing + 16)
                union all
                (select r.seq, r.run_at from (
                    select r.seq, r.run_at, r.ids[r.taken + 1] as id from tidemill.ready r
                    where r.queue = of_queue and r.priority = lowest and r.tenant <> '' and r.line < 2 and r.seq < first
                    order by r.run_at limit missing + 1000
                ) r
                where not exists (select from tidemill.job j where j.id = r.id and tidemill.stays(j))
                order by r.run_at limit missing + 16)
                union all
                (select r.seq, r.run_at from (
                    select r.seq, r.run_at, r.ids[r.taken + 1] as id from tidemill.ready r
                    where r.queue = of_queue and r.priority = lowest and r.line = 3 and r.seq < first
                    order by r.run_at limit missing + 1000
                ) r
                where not exists (select from tidemill.job j where j.id = r.id and tidemill.stays(j))
                order by r.run_at limit missing + 16)
                union all
                (select r.seq, r.run_at from (
                    select r.seq, r.run_at, r.ids[r.taken + 1] as id from tidemill.ready r
                    where r.queue = of_queue and r.priority + 0 = lowest and r.line = 2 and r.seq < first
                    order by r.run_at limit missing + 1000
                ) r
                where not exists (select from tidemill.job j where j.id = r.id and tidemill.stays(j))
                order by r.run_at limit missing + 16)
            ) c
            order by c.run_at, c.seq);
        foreach place in array places loop
            exit when missing <= 0;
            select r.* into sheaf from tidemill.ready r where r.seq = place for update skip locked;
            continue when not found;
            sheaf.ids := sheaf.ids[sheaf.taken + 1:];
            victims := sheaf.ids[:missing];
            continue when exists (
                select from tidemill.job j where j.id = any (victims) and tidemill.stays(j));
            keys := array(
                select j.unique_key from tidemill.job j where j.id = any (victims) and j.unique_key is not null);
            if cardinality(keys) > 0 then
                -- Keys are locked before sheaves everywhere else: wait for nobody here.
                continue when (select count(*) from tidemill.unique_key u where u.key = any (keys)) > (
                    select count(*) from (select from tidemill.unique_key u where u.key = any (keys)
                        for update skip locked) u);
            end if;
            if cardinality(victims) = cardinality(sheaf.ids) then
                delete from tidemill.ready r where r.seq = sheaf.seq;
            else
                update tidemill.ready r set ids = sheaf.ids[cardinality(victims) + 1:], taken = 0
                where r.seq = sheaf.seq;
            end if;
            insert into tidemill.outcome (
                id, queue, state, attempt, lost, finished_at, retain_ms, keyed, error, flow, step)
            select j.id, j.queue, 5, sheaf.attempt, sheaf.lost, present, tidemill.retain_of(j.options),
                j.unique_key is not null, 'dropped: the queue was full, and newer jobs came', j.flow, j.step
            from tidemill.job j where j.id = any (victims);
            insert into tidemill.flow_arrival (flow, step, ok, failed)
            select j.flow, j.step, 0, count(*) from tidemill.job j where j.id = any (victims) and j.flow is not null
            group by j.flow, j.step;
            perform tidemill.release(keys, victims, present);
            -- Nobody worked them off: it is as if they had not come, or the queue would seem to empty faster than it does.
            insert into tidemill.depth_delta (queue, tenant, came, went, dropped)
            values (of_queue, '', -cardinality(victims), -cardinality(victims), cardinality(victims));
            missing := missing - cardinality(victims);
        end loop;
        exit when missing <= 0;
    end loop;
    return wanted - missing;
end $$;

-- Refuses so many jobs for a queue in which others wait, `depth` of them; with them everything the statement wrote.
create function tidemill.refuse_full(of_queue text, depth int8, jobs int8, rule tidemill.queue, present timestamptz)
returns void language plpgsql as $$
begin
    raise exception using
        errcode = 'TM001',
        message = case when jobs > rule.depth_max
            then format('tidemill: queue_full: the batch has %s jobs for the queue %s, whose bound is %s: it never '
                'fits; split it, or raise the bound', jobs, of_queue, rule.depth_max)
            else format('tidemill: queue_full: the queue %s is full: %s, its bound is %s; try again in %s s',
                of_queue, case depth when 1 then '1 job waits' else depth || ' jobs wait' end, rule.depth_max,
                ceil(tidemill.retry_after_ms(of_queue, depth + jobs - rule.depth_max, present) / 1000.0)::int8)
        end,
        detail = json_build_object('queue', of_queue, 'depth', depth, 'depth_max', rule.depth_max,
            'jobs', jobs, 'wait_ms', rule.wait_ms,
            'retry_after_ms', tidemill.retry_after_ms(of_queue, depth + jobs - rule.depth_max, present))::text;
end $$;

-- Judges jobs that were just written: `jobs` new ones of one queue, none of a lower band than `band`, in sheaves from
-- `first` on. Makes room for them if the queue's rule says so; else, when it is deeper than its bound, refuses them,
-- and with them everything the statement wrote.
create function tidemill.admit(of_queue text, jobs int8, band int2, first int8, present timestamptz) returns void
language plpgsql as $$
declare
    rule tidemill.queue := tidemill.rule_of(of_queue);
    depth int8;
begin
    if rule.depth_max is null or jobs = 0 then
        return;
    end if;
    depth := tidemill.depth_of(of_queue);
    if depth <= rule.depth_max then
        return;
    end if;
    if rule.overflow = 'drop_oldest' and jobs <= rule.depth_max and tidemill.drop_oldest(
        of_queue, depth - rule.depth_max, band, first, present) >= depth - rule.depth_max then
        return;
    end if;
    perform tidemill.refuse_full(of_queue, depth - jobs, jobs, rule, present);
end $$;

-- Judges what is first in flows before it is let go: so many jobs of each of these queues, by the snapshot of the statement
-- that writes them. Of flows nothing is diverted, and they drop nothing.
create function tidemill.admit_flows(queues text[], jobs int8[], present timestamptz) returns boolean
language plpgsql stable as $$
declare
    rule tidemill.queue;
    depth int8;
begin
    if not tidemill.is_bounded(queues) then
        return true;
    end if;
    for place in 1..cardinality(queues) loop
        rule := tidemill.rule_of(queues[place]);
        continue when rule.depth_max is null or rule.overflow = 'drop_oldest';
        depth := tidemill.depth_of(queues[place]);
        if depth + jobs[place] > rule.depth_max then
            perform tidemill.refuse_full(queues[place], depth, jobs[place], rule, present);
        end if;
    end loop;
    return true;
end $$;

-- Folds the deltas into the counters, takes samples, and crosses watermarks. One at a time; others go away at once,
-- because the depth is exact without it, or wait, if they are to see what was crossed. Answers the queues that crossed
-- a watermark, each once.
create function tidemill.tend_depth(at timestamptz, waits boolean)
returns table (queue text, is_above boolean, depth int8) language plpgsql as $$
#variable_conflict use_column
declare
    present timestamptz := coalesce(tend_depth.at, now());
begin
    if waits then
        perform pg_advisory_xact_lock(7470236459016417648);
    elsif not pg_try_advisory_xact_lock(7470236459016417648) then
        return;
    end if;
    with delta as (
        delete from tidemill.depth_delta returning *
    ), of_tenant as (
        insert into tidemill.tenant_depth as t (queue, tenant, depth)
        select d.queue, d.tenant, sum(d.came - d.went) from delta d where d.tenant <> ''
        group by d.queue, d.tenant having sum(d.came - d.went) <> 0
        on conflict (queue, tenant) do update set depth = t.depth + excluded.depth
    ), of_queue as (
        select d.queue, sum(d.came) as came, sum(d.went) as went, sum(d.dropped) as dropped,
            coalesce(tend_depth.at, min(d.at)) as since, coalesce(tend_depth.at, max(d.at)) as changed_at
        from delta d group by d.queue
    ), first as (
        -- A queue that nobody knew had counted nothing just before: its first jobs are part of its rates.
        insert into tidemill.depth_sample (queue, at, came, went)
        select d.queue, d.since - interval '1 microsecond', 0, 0 from of_queue d
        where not exists (select from tidemill.depth c where c.queue = d.queue)
        on conflict do nothing
    )
    insert into tidemill.depth as c (queue, came, went, dropped, changed_at)
    select d.queue, d.came, d.went, d.dropped, d.changed_at from of_queue d
    on conflict (queue) do update
    set came = c.came + excluded.came, went = c.went + excluded.went, dropped = c.dropped + excluded.dropped,
        changed_at = greatest(c.changed_at, excluded.changed_at);
    -- What a new queue begins with is no sample that was taken.
    if not exists (
        select from tidemill.depth_sample s where s.at > present - interval '10 seconds' and s.came <> 0) then
        perform tidemill.sample_depth(present);
    end if;
    if not exists (select from tidemill.queue q where q.high_water is not null)
        and not exists (select from tidemill.depth d where d.above_since is not null) then
        return;
    end if;
    return query
    update tidemill.depth d set above_since = case when d.above_since is null then present end
    from (
        select c.queue, (r.rule).high_water as high, (r.rule).low_water as low
        from tidemill.depth c, lateral (select tidemill.rule_of(c.queue) as rule) r
        where c.came > c.went or c.above_since is not null
    ) r
    where d.queue = r.queue and case when d.above_since is null
        then d.came - d.went >= r.high
        else r.high is null or d.came - d.went <= r.low
    end
    returning d.queue, d.above_since is not null, d.came - d.went;
end $$;

-- Notes what has changed since the last sample, and forgets what nobody asks for any more: samples from before the
-- latest that is a minute old, tenants who have nothing waiting, queues that were empty and still for ten minutes.
create function tidemill.sample_depth(present timestamptz) returns void language plpgsql as $$
begin
    insert into tidemill.depth_sample (queue, at, came, went)
    select d.queue, present, d.came, d.went from tidemill.depth d
    where not exists (
        select from (
            select s.came, s.went from tidemill.depth_sample s where s.queue = d.queue order by s.at desc limit 1
        ) s
        where s.came = d.came and s.went = d.went)
    on conflict do nothing;
    delete from tidemill.depth_sample s where exists (
        select from tidemill.depth_sample n
        where n.queue = s.queue and n.at > s.at and n.at <= present - interval '1 minute');
    delete from tidemill.tenant_depth t where t.depth = 0;
    delete from tidemill.depth d
    where d.came = d.went and d.above_since is null and not exists (
        select from tidemill.depth_sample s where s.queue = d.queue and s.at > present - interval '10 minutes');
    delete from tidemill.depth_sample s where not exists (select from tidemill.depth d where d.queue = s.queue);
end $$;

-- Enqueues in the caller's transaction, as tidemill.enqueue_json does, but a full queue is an answer, in place of all
-- others and with nothing written, so that the caller's transaction goes on.
create function tidemill.enqueue_in(jobs text) returns table (ord int8, id uuid, answer text) language plpgsql as $$
begin
    -- A subtransaction has its price, so only where it is needed.
    if not exists (select from tidemill.queue q where q.depth_max is not null) then
        return query select * from tidemill.enqueue_json(jobs, null, true);
        return;
    end if;
    begin
        return query select * from tidemill.enqueue_json(jobs, null, true);
    exception when sqlstate 'TM001' then
        get stacked diagnostics answer = pg_exception_detail;
        ord := 0;
        return next;
    end;
end $$;

-- Any tenant of a queue; '' if none is known yet. Processes that have served nobody begin there: if all began with the
-- first name, the last would wait for as long as processes come and go.
create function tidemill.any_tenant(of_queue text) returns text language sql volatile as $$
    select coalesce((
        select t.tenant from (
            select t.tenant from tidemill.tenant_depth t where t.queue = of_queue
            union
            select d.tenant from tidemill.depth_delta d where d.queue = of_queue and d.tenant <> ''
        ) t order by random() limit 1), '')
$$;

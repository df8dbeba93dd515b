-- Depth: how many jobs wait in a queue, counted as they come and go, and the bounds judged by it.
--
-- The writer counts in memory and writes once per transaction (`depth.rs`); plain SQL counts job by job, in the triggers
-- of the inbox. Both go through the view `tidemill_count`, in the transaction that changes `tidemill_ready`, so the
-- counters are exact whoever crashes when.

-- What of the rules is needed here. All null where a rule has no bound and no watermarks.
alter table tidemill_queue add column depth_max integer;
alter table tidemill_queue add column overflow text;
alter table tidemill_queue add column wait_ms integer;
alter table tidemill_queue add column divert text;
alter table tidemill_queue add column high_water integer;
alter table tidemill_queue add column low_water integer;
create index tidemill_queue_bounded on tidemill_queue (name) where depth_max is not null;
create index tidemill_queue_watched on tidemill_queue (name) where high_water is not null;

-- Jobs that ever came into a queue and went out of it, and those that were dropped, which are in neither number any
-- more; `above_since`: when its high watermark was reached; `changed_at`: when a job came or went last.
create table tidemill_depth (
    queue text not null primary key,
    came integer not null,
    went integer not null,
    dropped integer not null default 0,
    above_since integer,
    changed_at integer not null default 0
) without rowid;
create index tidemill_depth_above on tidemill_depth (queue) where above_since is not null;

create table tidemill_tenant_depth (
    queue text not null,
    tenant text not null,
    depth integer not null,
    primary key (queue, tenant)
) without rowid;

-- What a queue had counted at a moment, taken when that has changed: for its rates.
create table tidemill_depth_sample (
    queue text not null,
    at integer not null,
    came integer not null,
    went integer not null,
    primary key (queue, at)
) without rowid;

insert into tidemill_depth (queue, came, went)
select queue, count(*), 0
from (select queue from tidemill_ready union all select queue from tidemill_line_waiting)
group by queue;
insert into tidemill_tenant_depth (queue, tenant, depth)
select queue, tenant, count(*) from tidemill_ready where tenant <> '' group by queue, tenant;

-- Where everything is counted; without `now`, as of this machine's clock.
create view tidemill_count as select null as queue, null as tenant, null as came, null as went, null as now where 0;

create trigger tidemill_count_insert instead of insert on tidemill_count
begin
    -- A queue that nobody knew had counted nothing just before: its first jobs are part of its rates.
    insert or ignore into tidemill_depth_sample (queue, at, came, went)
    select
        new.queue,
        coalesce(new.now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) - 1,
        0, 0
    where not exists (select 1 from tidemill_depth where queue = new.queue);
    insert into tidemill_depth (queue, came, went, changed_at)
    values (
        new.queue, new.came, new.went,
        coalesce(new.now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
    )
    on conflict (queue) do update
    set came = came + excluded.came, went = went + excluded.went, changed_at = max(changed_at, excluded.changed_at);
    insert into tidemill_tenant_depth (queue, tenant, depth)
    select new.queue, new.tenant, new.came - new.went where new.tenant <> ''
    on conflict (queue, tenant) do update set depth = depth + excluded.depth;
    delete from tidemill_tenant_depth where queue = new.queue and tenant = new.tenant and depth = 0;
end;

-- Jobs that wait behind another of their line count for their queue. One that comes to its head counts as it did.
create trigger tidemill_line_waiting_count_insert after insert on tidemill_line_waiting
begin
    insert into tidemill_count (queue, tenant, came, went) values (new.queue, '', 1, 0);
end;
create trigger tidemill_line_waiting_count_delete after delete on tidemill_line_waiting
begin
    insert into tidemill_count (queue, tenant, came, went) values (old.queue, '', -1, 0);
end;

-- The rule of every queue that ever had a job, and its depth. One that never had any is not full.
create view tidemill_bound as
select counted.queue, counted.came - counted.went as depth, rule.depth_max, rule.overflow, rule.divert,
    rule.high_water, rule.low_water
from tidemill_depth as counted
join tidemill_queue as rule
where rule.name = coalesce(
    (select name from tidemill_queue where name = counted.queue),
    (
        select name from tidemill_queue
        where substr(name, -1) = '*'
            and substr(counted.queue, 1, length(name) - 1) = substr(name, 1, length(name) - 1)
        order by length(name) desc
        limit 1
    )
);

-- Jobs on their way out, to make room for newer ones. A row lives for one statement.
create table tidemill_dropped (
    id blob not null primary key,
    queue text not null,
    priority integer not null,
    tenant text not null,
    run_at integer not null,
    spent integer not null,
    lost integer not null
) without rowid;

-- Jobs that newer ones never push out: they take turns, or a run waits for their end. Runs come to them with their tables.
create view tidemill_stays as
select id from tidemill_job
where key is not null and json_extract(options, '$.ordered') is not null
    or json_extract(options, '$.parent') is not null;

-- What an enqueue has written: new jobs, and those that it has given another content.
create view tidemill_own as
select case act when 'replace' then holder else id end as id from tidemill_inbox where act in ('write', 'replace');

-- Takes `wanted` jobs of one band that have been due longest out of a queue, or as many as there are that do not stay.
-- One that is held at a gate has 10 more for its band, one that is laid aside 20. Each part is read in the order of an
-- index, and no further. What came with the same enqueue is no older than what it makes room for.
create view tidemill_drop as select null as queue, null as band, null as wanted where 0;
create trigger tidemill_drop_insert instead of insert on tidemill_drop
when new.wanted > 0
begin
    insert into tidemill_dropped (id, queue, priority, tenant, run_at, spent, lost)
    select id, queue, priority, tenant, run_at, spent, lost
    from (
        select * from (
            select id, queue, priority, tenant, run_at, spent, lost from tidemill_ready as ready
            where queue = new.queue and priority = new.band and tenant = '' and not exists (
                select 1 from tidemill_stays as stays where stays.id = ready.id
            ) and id not in (select own.id from tidemill_own as own)
            order by run_at
            limit new.wanted
        )
        union all
        select * from (
            select id, queue, priority, tenant, run_at, spent, lost from tidemill_ready as ready
            where queue = new.queue and priority = new.band and tenant <> '' and not exists (
                select 1 from tidemill_stays as stays where stays.id = ready.id
            ) and id not in (select own.id from tidemill_own as own)
            order by run_at
            limit new.wanted
        )
        union all
        select * from (
            select id, queue, priority, tenant, run_at, spent, lost from tidemill_ready as ready
            where queue = new.queue and priority = new.band + 10 and tenant = '' and not exists (
                select 1 from tidemill_stays as stays where stays.id = ready.id
            ) and id not in (select own.id from tidemill_own as own)
            order by run_at
            limit new.wanted
        )
        union all
        select * from (
            select id, queue, priority, tenant, run_at, spent, lost from tidemill_ready as ready
            where queue = new.queue and priority = new.band + 10 and tenant <> '' and not exists (
                select 1 from tidemill_stays as stays where stays.id = ready.id
            ) and id not in (select own.id from tidemill_own as own)
            order by run_at
            limit new.wanted
        )
        union all
        select * from (
            select id, queue, priority, tenant, run_at, spent, lost from tidemill_ready as ready
            where queue = new.queue and priority = new.band + 20 and tenant <> '' and not exists (
                select 1 from tidemill_stays as stays where stays.id = ready.id
            ) and id not in (select own.id from tidemill_own as own)
            order by run_at
            limit new.wanted
        )
    )
    order by run_at, id
    limit new.wanted;
end;

-- Room for `jobs` of one queue, none of a lower band than `band`, of which so many are still `coming`: where the queue is
-- fuller than its bound, older ones make room for them, or all are refused.
create view tidemill_room as select null as queue, null as jobs, null as coming, null as band, null as now where 0;
create trigger tidemill_room_insert instead of insert on tidemill_room
begin
    -- From the lowest band up to their own, until all that is too much has gone.
    insert into tidemill_drop (queue, band, wanted)
    select new.queue, 3, depth + new.coming - depth_max - (select count(*) from tidemill_dropped)
    from tidemill_bound
    where queue = new.queue and overflow = 'drop_oldest' and new.jobs <= depth_max and new.band <= 3;
    insert into tidemill_drop (queue, band, wanted)
    select new.queue, 2, depth + new.coming - depth_max - (select count(*) from tidemill_dropped)
    from tidemill_bound
    where queue = new.queue and overflow = 'drop_oldest' and new.jobs <= depth_max and new.band <= 2;
    insert into tidemill_drop (queue, band, wanted)
    select new.queue, 1, depth + new.coming - depth_max - (select count(*) from tidemill_dropped)
    from tidemill_bound
    where queue = new.queue and overflow = 'drop_oldest' and new.jobs <= depth_max and new.band <= 1;
    insert into tidemill_drop (queue, band, wanted)
    select new.queue, 0, depth + new.coming - depth_max - (select count(*) from tidemill_dropped)
    from tidemill_bound
    where queue = new.queue and overflow = 'drop_oldest' and new.jobs <= depth_max and new.band <= 0;
    select raise(abort, 'tidemill: queue_full: the queue of this job is full; try again later')
    from tidemill_bound
    where queue = new.queue and depth + new.coming - depth_max > (select count(*) from tidemill_dropped);

    insert into tidemill_outcome (
        id, queue, state, attempt, lost, finished_at, retain_ms, keyed, error, flow, step
    )
    -- No span is longer than a thousand years: what was never checked is an integer, too.
    select job.id, job.queue, 5, dropped.spent, dropped.lost, new.now,
        min(json_extract(job.options, '$.retain_ms'), 31622400000000), job.unique_key is not null,
        'dropped: the queue was full, and newer jobs came', job.flow, job.step
    from tidemill_dropped as dropped join tidemill_job as job on job.id = dropped.id;
    insert into tidemill_flow_arrival (flow, step, ok, failed)
    select job.flow, job.step, 0, 1
    from tidemill_dropped as dropped join tidemill_job as job on job.id = dropped.id
    where job.flow is not null;
    delete from tidemill_ready
    where (queue, priority, tenant, run_at, id) in (
        select queue, priority, tenant, run_at, id from tidemill_dropped
    );
    -- Nobody worked them off: it is as if they had not come, or the queue would seem to empty faster than it does.
    insert into tidemill_count (queue, tenant, came, went, now)
    select queue, tenant, -1, 0, new.now from tidemill_dropped;
    update tidemill_depth set dropped = dropped + (select count(*) from tidemill_dropped) where queue = new.queue;

    -- Their keys go to those who are kept for afterwards, or are free.
    insert into tidemill_start (id, now)
    select held.next_id, new.now
    from tidemill_dropped as dropped
    join tidemill_job as job on job.id = dropped.id
    join tidemill_unique_key as held on held.key = job.unique_key and held.id = job.id
    where held.next_id is not null;
    delete from tidemill_unique_key
    where scope = 'unfinished' and next_id is null and id in (select id from tidemill_dropped) and key in (
        select unique_key from tidemill_job where id in (select id from tidemill_dropped)
    );
    update tidemill_unique_key set id = next_id, next_id = null
    where next_id is not null and id in (select id from tidemill_dropped) and key in (
        select unique_key from tidemill_job where id in (select id from tidemill_dropped)
    );
    delete from tidemill_dropped;
end;

-- A job is about to be written: where its queue is full, that makes room, or refuses it.
create trigger tidemill_inbox_admit before update of act on tidemill_inbox
when new.act = 'write' and new.bounded = 1 and exists (
    select 1 from tidemill_bound where queue = new.queue and depth >= depth_max
)
begin
    insert into tidemill_room (queue, jobs, coming, band, now) values (new.queue, 1, 1, new.priority, new.now);
end;

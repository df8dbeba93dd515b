-- Claims: fair shares, and gates that let through only so much at once, per time, while the other side is well.
--
-- A limit is a rule; its gate has the limit's name, and one more part, behind chr(31), where the limit counts by
-- tenant or key. What a claim reads of a gate stays true until it commits:
-- - Gates by tenant or key: it has locked the gate's row of `turn`, one of 16,384 that all gates share. Nobody waits for
--   one: whose row is in other hands stays in line, and is asked for again. So claims of one limit run side by side.
-- - Gates for all, and limits with a rate, a breaker or a retry budget: claims of one limit take turns (an advisory lock).
-- Both are held to the end of the transaction. Settles take no turn: they only give back.
-- A limit on as many as all workers together may hold (`reach`), or more, cannot be exceeded: it needs neither, and if it
-- does nothing but count, claims leave it out, and write nothing down. A worker that asks for more than its reach is told
-- so, and has it raised by a transaction of its own first. Whoever raises it, or registers, has the lock of the rules
-- alone, as a change of them has, and writes down who runs inside of a limit that can be exceeded from then on.
-- A claim that leaves its worker with no more than a limit has beyond the reach of all others cannot exceed it either,
-- whatever they claim meanwhile: it writes down who goes in, and neither judges nor waits.
-- A rate that seems to have room is trusted: claims share its turn, take what they find, and charge the rate for it as the
-- last thing they do, under the locks of its gates' rows. Where it had less room than that, all is undone, and judged.
--
-- So that nobody is forgotten, each side looks once more when it has committed: who came out, whether anybody is held
-- there (`come_out`), and who held somebody, whether there is room by now (`look_back`). One of them sees the other.
--
-- No claim follows rules that are no more. A claim has the lock of the rules, shared with other claims, from its first
-- statement to its end; whoever changes them has it alone. So a change waits for claims under way and sees their leases,
-- and a claim that waited for a change sees its edition, by the next statement, and is refused if it was made up by
-- another. (The lock of each asker's row of `worker` would do, too: a change would have to take them all, while new claims
-- of a worker with many go ahead of one that waits for its row, and workers could register in between.)
--
-- permit    how many jobs of a lease are inside a gate. Goes with the lease, so no crash can leak one.
-- stowaway  jobs that run inside of a gate without a permit: they ran already when its limit was set, or began to count.
--           Each counts as long as its lease has it. Empty, but for a while after such a change.
-- rulebook  one row: how often rules were set or taken away.
-- gate    only of gates that have something to remember:
--         tat         when a rate has caught up (GCRA)
--         pause_until nobody passes before: the other side asked for it
--         shut_until  nobody passes before: too much failed
--         probing     1: it was shut because too much failed, the next one that passes is a probe; 2: one is out
--         probe       the token of that one's lease
--         good, bad   how attempts ended since window_at
--         credit      retries that first attempts have paid for
--         opens_at    when it is worth looking whether those held here may pass. The row that is named like its limit
--                     also says when to look at all gates of the limit that have stowaways: nobody tells of their end.
--         waiters     queues whose claims were turned away before they looked at any job

create table tidemill.turn (
    number int4 primary key
);
insert into tidemill.turn select generate_series(0, 16383);

create table tidemill.permit (
    gate text collate "C" not null,
    token int8 not null,
    held int4 not null,
    primary key (gate, token)
) with (fillfactor = 70);

create table tidemill.stowaway (
    base text collate "C" not null,
    gate text collate "C" not null,
    token int8 not null,
    id uuid not null,
    primary key (base, gate, token, id)
);

create table tidemill.rulebook (
    is_it boolean primary key default true check (is_it),
    edition int8 not null
);
insert into tidemill.rulebook (edition) values (0);

create table tidemill.gate (
    name text collate "C" primary key,
    base text collate "C" not null,
    tat timestamptz,
    pause_until timestamptz,
    shut_until timestamptz,
    probing int2 not null default 0,
    probe int8,
    good int4 not null default 0,
    bad int4 not null default 0,
    window_at timestamptz,
    credit float8,
    opens_at timestamptz,
    waiters text[] not null default '{}'
) with (fillfactor = 70);
-- Few, if any: whether somebody waits is asked after every settle.
create index gate_waiters on tidemill.gate (name) where waiters <> '{}';
create index gate_broken on tidemill.gate (name) where probing > 0;
create index gate_base on tidemill.gate (base);
create index gate_opens on tidemill.gate (base, opens_at) where opens_at is not null;

alter table tidemill.permit set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
alter table tidemill.gate set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create function tidemill.drop_permits() returns trigger language plpgsql as $$
begin
    -- By a look each: a plan made while the table was empty would walk all of it. Nobody else changes what is looked up:
    -- who settles something of a lease has its row, and now it is gone.
    delete from tidemill.permit p where p.ctid = any (array(
        select x.ctid from ended e, unnest(e.gates) g, lateral (
            select x.ctid from tidemill.permit x where x.gate = g and x.token = e.token limit 1
        ) x where e.gates is not null));
    return null;
end $$;

create trigger drop_permits after delete on tidemill.lease referencing old table as ended
for each statement execute function tidemill.drop_permits();

-- What a claim is told of a limit. `per`: 0 one gate for all, 1 by tenant, 2 by key, 3 for retries.
create type tidemill.limit as (
    queue text, gate text, kind text, per int2, most int4, every_us int8, burst int4, probe_us int8, percent int4,
    holds boolean
);

-- Waits for the turn of claims under these limits; held to the end of the transaction. Of those in `beside`, others may
-- have their turn at the same time, if they take it so, too.
create function tidemill.take_turns(bases text[], beside text[]) returns void language plpgsql as $$
begin
    perform case when t.is_beside then pg_advisory_xact_lock_shared(t.turn) else pg_advisory_xact_lock(t.turn) end
    from (
        select hashtextextended('tidemill gate ' || b.base, 0) as turn, bool_and(b.is_beside) as is_beside
        from (select b, false from unnest(bases) b union all select b, true from unnest(beside) b) b(base, is_beside)
        group by 1 order by 1
    ) t;
end $$;

-- Keeps the rules as they are to the end of the transaction (`shared`), or all claims out that would follow them.
create function tidemill.lock_rules(shared boolean) returns void language plpgsql as $$
begin
    if shared then
        perform pg_advisory_xact_lock_shared(hashtextextended('tidemill rules', 0));
    else
        perform pg_advisory_xact_lock(hashtextextended('tidemill rules', 0));
    end if;
end $$;

-- Announces a worker; announced again it beats, and says of itself what it says now. Where a limit counts who runs at once
-- this does nothing, and says so (`false`), unless the caller has the lock of the rules `alone`.
create function tidemill.register(
    at timestamptz, of_id uuid, of_name text, of_queues text[], of_kinds text[], of_slots int4, of_lease_us int8,
    of_slots_of text, alone boolean
) returns boolean language plpgsql as $$
begin
    if not alone then
        perform tidemill.lock_rules(true);
        if exists (
            select from tidemill.queue q where jsonb_path_exists(q.rules::jsonb, '$.**.concurrency ? (@ != null)')) then
            return false;
        end if;
    end if;
    insert into tidemill.worker as w (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at, lease_us)
    select of_id, of_name, of_queues, of_kinds, of_slots, least(2 * of_slots::int8, 2147483647)::int4, of_slots_of,
        p.now, p.now, of_lease_us
    from (select coalesce(register.at, now()) as now) p
    on conflict (id) do update
    set name = excluded.name, queues = excluded.queues, kinds = excluded.kinds, slots = excluded.slots,
        reach = greatest(w.reach, excluded.reach), slots_of = excluded.slots_of, beat_at = excluded.beat_at,
        lease_us = excluded.lease_us;
    return true;
end $$;

-- How many jobs a worker holds, if that is more than this; else so many at most. A lease that is not settled to the end
-- still names those of its jobs that have ended: where they would make a difference, they are looked up.
create function tidemill.held_by(of_worker uuid, more_than int4) returns int4 language plpgsql stable as $$
declare
    held int8 := (
        select coalesce(sum(cardinality(l.ids) - cardinality(l.gone)), 0) from tidemill.lease l where l.worker = of_worker);
begin
    if held > more_than then
        held := (
            select count(*) from tidemill.lease l, unnest(l.ids) i(id)
            where l.worker = of_worker and i.id <> all (l.gone)
                and not exists (select from tidemill.outcome o where o.id = i.id offset 0));
    end if;
    return held;
end $$;

-- Which row of `turn` a gate shares with others.
create function tidemill.turn_of(gate text) returns int4 language sql immutable as $$
    select (hashtextextended(gate, 0) & 16383)::int4
$$;

-- How many cells of a rate are free: GCRA, `burst` cells at once at most.
create function tidemill.cells(tat timestamptz, at timestamptz, every_us int8, burst int4) returns int8
language sql immutable as $$
    select greatest(0, floor(burst - greatest(0, extract(epoch from tat - at) * 1000000) / every_us))::int8
$$;

-- When the next cell is free.
create function tidemill.next_cell(tat timestamptz, every_us int8, burst int4) returns timestamptz
language sql immutable as $$
    select tat - (burst - 1) * every_us * interval '1 us'
$$;

-- Whether a stowaway still runs: its lease has it, and it has not finished, nor was it forgotten since. In plpgsql: each
-- is looked for by its key, whatever the tables are like.
create function tidemill.is_aboard(of_token int8, of_id uuid) returns boolean language plpgsql stable as $$
begin
    return exists (select from tidemill.lease l where l.token = of_token and of_id <> all (l.gone))
        and not exists (select from tidemill.outcome o where o.id = of_id)
        and exists (select from tidemill.job j where j.id = of_id);
end $$;

-- When to look again at the gates of a limit, if it has stowaways.
create function tidemill.next_look(at timestamptz, of_base text) returns timestamptz language plpgsql stable as $$
begin
    if exists (select from tidemill.stowaway s where s.base = of_base and tidemill.is_aboard(s.token, s.id)) then
        return next_look.at + interval '500 ms';
    end if;
    return null;
end $$;

-- Until when a gate is closed, by what its limit heeds.
create function tidemill.closed_until(shut_until timestamptz, pause_until timestamptz, of_limit tidemill.limit)
returns timestamptz language sql immutable as $$
    select greatest(case when of_limit.probe_us is not null then shut_until end,
        case when of_limit.holds then pause_until end)
$$;

-- How many each of these gates lets through now. The caller has the turn. In plpgsql, which keeps its plans.
create function tidemill.rooms(at timestamptz, gates text[], of_limit tidemill.limit)
returns table (gate text, room int8) language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select t.gate, least(
        of_limit.most - i.inside - s.stowed,
        case
            when tidemill.closed_until(g.shut_until, g.pause_until, of_limit) > rooms.at then 0
            -- No other while one is out; one that is lost is not.
            when of_limit.probe_us is not null and g.probing = 2
                and exists (select from tidemill.lease x where x.token = g.probe) then 0
            when of_limit.probe_us is not null and g.probing > 0 then 1
        end,
        case when of_limit.every_us is not null then
            coalesce(tidemill.cells(g.tat, rooms.at, of_limit.every_us, of_limit.burst), of_limit.burst)
        end,
        case when of_limit.percent is not null then coalesce(floor(g.credit)::int8, of_limit.burst) end,
        2147483647)
    -- By a look each: a plan made while the table was empty would walk all of it for each gate.
    from unnest(gates) t(gate) left join lateral (
        select * from tidemill.gate g where g.name = t.gate limit 1
    ) g on true, lateral (
        select coalesce(sum(p.held), 0) as inside from tidemill.permit p
        where of_limit.most is not null and p.gate = t.gate
    ) i, lateral (
        -- Where there are none at all, which is asked once, no gate is looked at.
        select count(*) as stowed from (
            select from tidemill.stowaway s
            where of_limit.most is not null and (select exists (select from tidemill.stowaway))
                and s.base = of_limit.gate and s.gate = t.gate and tidemill.is_aboard(s.token, s.id)
            limit of_limit.most
        ) s
    ) s;
end $$;

-- Who of these candidates passes the limits of their queue, from the finest limit to the coarsest: `passed` of
-- `numbers` each, by `through` these gates (each ended by chr(30)); `stops` names the gate that holds the others.
create function tidemill.pass(
    at timestamptz, limits tidemill.limit[], of_queue text, numbers int4[], kinds text[], tenants text[],
    keys text[], attempts int2[], out passed int4[], out through text[], out stops text[]
) language plpgsql stable as $$
declare
    l tidemill.limit;
begin
    passed := numbers;
    through := array_fill(''::text, array[cardinality(numbers)]);
    stops := array_fill(null::text, array[cardinality(numbers)]);
    foreach l in array limits loop
        continue when l.queue <> of_queue;
        with candidate as materialized (
            select c.*, case when l.kind is null or c.kind = l.kind then l.gate || case l.per
                when 1 then chr(31) || nullif(c.tenant, '')
                when 2 then chr(31) || nullif(c.key, '')
                when 3 then case when c.attempt > 0 then '' end
                else ''
            end end as gate
            from unnest(pass.passed, kinds, tenants, keys, attempts, pass.through, pass.stops) with ordinality
                c(number, kind, tenant, key, attempt, through, stop, place)
        ), ranked as (
            select c.*, r.room + c.number - sum(c.number) over (
                partition by c.gate order by c.place rows unbounded preceding) as room
            from candidate c left join tidemill.rooms(
                pass.at, array(select distinct c.gate from candidate c where c.gate is not null), l) r using (gate)
        )
        -- In order already: to sort inside of each aggregate cost a claim of 500 two milliseconds.
        select array_agg(v.passed), array_agg(v.through), array_agg(v.stop)
        into pass.passed, pass.through, pass.stops
        from (
            select case when r.gate is null then r.number else greatest(0, least(r.number, r.room))::int4 end as passed,
                r.through || coalesce(r.gate || chr(30), '') as through,
                -- The last one that cuts it: at a finer one, which has room, it would be let through again and again.
                case when r.number > 0 and r.room < r.number then r.gate else r.stop end as stop
            from ranked r order by r.place
        ) v;
    end loop;
end $$;

-- Writes down who went in: permits, cells of rates, probes, credit for retries; answers the gates. `again`: this lease
-- may be inside of these gates already.
create function tidemill.go_in(
    at timestamptz, limits tidemill.limit[], lease int8, through text[], numbers int4[], again boolean,
    out gates text[]
) language plpgsql as $$
declare
    bases text[];
    sums int4[];
    counted text[] := array(select l.gate from unnest(limits) l where l.most is not null);
begin
    -- By name: neighbours in the index are written one after the other.
    select array_agg(g.gate), array_agg(split_part(g.gate, chr(31), 1)), array_agg(g.number)
    into go_in.gates, bases, sums
    from (
        select t.gate, sum(n.number)::int4 as number
        from unnest(go_in.through, go_in.numbers) n(through, number),
            unnest(string_to_array(rtrim(n.through, chr(30)), chr(30))) t(gate)
        where n.number > 0 group by t.gate order by t.gate collate "C"
    ) g;
    if again then
        insert into tidemill.permit as p (gate, token, held)
        select g.gate, go_in.lease, g.number from unnest(go_in.gates, bases, sums) g(gate, base, number)
        where g.base = any (counted)
        on conflict (gate, token) do update set held = p.held + excluded.held;
    else
        -- The token is new: nothing can be in the way, and the insert need not be ready for it.
        insert into tidemill.permit (gate, token, held)
        select g.gate, go_in.lease, g.number from unnest(go_in.gates, bases, sums) g(gate, base, number)
        where g.base = any (counted);
    end if;
    if not exists (
        select from unnest(limits) l where coalesce(l.every_us, l.probe_us, l.percent) is not null) then
        return;
    end if;
    with going as materialized (
        select g.gate, g.number, l.* from unnest(go_in.gates, bases, sums) g(gate, base, number), lateral (
            select l.every_us, l.probe_us, l.percent, l.burst, l.gate as base from unnest(limits) l
            where l.gate = g.base limit 1
        ) l
    ), probes as (
        update tidemill.gate x set probing = 2, probe = go_in.lease, shut_until = go_in.at + g.probe_us * interval '1 us'
        from going g where x.name = g.gate and g.probe_us is not null and g.every_us is null and x.probing > 0
    )
    insert into tidemill.gate as x (name, base, tat, credit)
    select g.gate, g.base, go_in.at + g.number * g.every_us * interval '1 us',
        case when g.percent is not null then g.burst - g.number end
    from going g where g.every_us is not null or g.percent is not null
    on conflict (name) do update set
        tat = greatest(x.tat, go_in.at) + (excluded.tat - go_in.at),
        -- Who is still held was not met: the next cell is his.
        opens_at = case when x.opens_at is not null then least(x.opens_at, (
            select tidemill.next_cell(greatest(x.tat, go_in.at) + (excluded.tat - go_in.at), l.every_us, l.burst)
            from unnest(limits) l where l.gate = x.base limit 1)) end,
        -- Without a budget there is none: a gate that has one is never forgotten.
        credit = case when excluded.credit is not null then greatest(0, coalesce(x.credit + excluded.credit - (
            select min(l.burst) from unnest(limits) l where l.gate = x.base), excluded.credit)) else x.credit end,
        probing = sign(x.probing) * 2,
        probe = case when x.probing > 0 then go_in.lease end,
        shut_until = case when x.probing > 0 then go_in.at + (
            select min(l.probe_us) from unnest(limits) l where l.gate = x.base) * interval '1 us' else x.shut_until end;
end $$;

-- Whether a rate is likely to let a claim of so many pass: nobody is held at a gate of it, and where it is one gate for
-- all there is room.
create function tidemill.is_calm(at timestamptz, of_limit tidemill.limit, jobs_max int4) returns boolean
language plpgsql stable as $$
begin
    return not exists (select from tidemill.gate g where g.base = of_limit.gate and g.opens_at is not null)
        and (of_limit.per <> 0 or jobs_max <= coalesce((
            select tidemill.cells(g.tat, is_calm.at, of_limit.every_us, of_limit.burst) from tidemill.gate g
            where g.name = of_limit.gate), of_limit.burst));
end $$;

-- Takes the cells of jobs that went through these gates from the rates of these limits; answers whether they were free.
-- Rows are locked in the order of their names, as everywhere where many gates are written; of these limits no row was
-- locked before.
create function tidemill.charge(at timestamptz, limits tidemill.limit[], passed text[], out were_free boolean)
language plpgsql as $$
begin
    with going as materialized (
        select t.gate, sum(p.number)::int8 as number
        from (select n.names, count(*) as number from unnest(charge.passed) n(names) group by n.names) p,
            unnest(string_to_array(rtrim(p.names, chr(30)), chr(30))) t(gate)
        group by t.gate
    ), charged as (
        insert into tidemill.gate as x (name, base, tat)
        select g.gate, l.gate, charge.at + g.number * l.every_us * interval '1 us'
        from going g, lateral (
            select l.gate, l.every_us from unnest(limits) l where l.gate = split_part(g.gate, chr(31), 1) limit 1
        ) l
        order by g.gate collate "C"
        on conflict (name) do update set tat = greatest(x.tat, charge.at) + (excluded.tat - charge.at)
        returning x.base, x.tat
    )
    select coalesce(bool_and(c.tat <= charge.at + (
        select l.burst * l.every_us from unnest(limits) l where l.gate = c.base limit 1) * interval '1 us'), true)
    into were_free from charged c;
end $$;

-- First attempts pay for retries: `percent` of one each, up to ten times what is there at first.
create function tidemill.pay_for_retries(at timestamptz, limits tidemill.limit[], of_queue text, firsts int4)
returns void language sql as $$
    insert into tidemill.gate as x (name, base, credit, opens_at)
    select l.gate, l.gate, l.burst + firsts * l.percent / 100.0, pay_for_retries.at from unnest(limits) l
    where l.queue = of_queue and l.per = 3 and firsts > 0
    on conflict (name) do update set opens_at = excluded.opens_at, credit = least(
        10 * (select min(l.burst) from unnest(limits) l where l.gate = x.name),
        coalesce(x.credit + excluded.credit - (select min(l.burst) from unnest(limits) l where l.gate = x.name),
            excluded.credit))
$$;

-- Notes when the clock opens gates that turned somebody away. Gates that only count are left to whoever shut them, who
-- has noted it: other claims may be at them, and are not waited for.
create function tidemill.note_opening(at timestamptz, limits tidemill.limit[], gates text[]) returns void
language sql as $$
    update tidemill.gate g set opens_at = least(coalesce(g.opens_at, o.opens), o.opens)
    from (
        select distinct t.gate, greatest(tidemill.closed_until(x.shut_until, x.pause_until, l), case when l.every_us is not null then
            tidemill.next_cell(x.tat, l.every_us, l.burst) end) as opens
        from unnest(gates) t(gate) join tidemill.gate x on x.name = t.gate
        join unnest(limits) l on l.gate = x.base
            and (l.per not in (1, 2) or coalesce(l.every_us, l.probe_us, l.percent) is not null)
    ) o
    where g.name = o.gate and o.opens > note_opening.at
$$;

-- Gates of these limits that are worth looking at, a thousand at most, locked: whoever comes out of one now notes so
-- after us. What is read of them by later statements is therefore not closed over.
create function tidemill.due_gates(at timestamptz, bases text[]) returns text[] language plpgsql as $$
begin
    return array(
        select g.name from tidemill.gate g where g.base = any (bases) and g.opens_at <= due_gates.at
        order by g.opens_at limit 1000 for update skip locked);
end $$;

-- Lets so many of one lane through that a gate holds, by turns of its tenants, from the one behind `behind` on; answers
-- how many. A sheaf keeps the name of the gate: what a claim leaves of it is held there again.
create function tidemill.let_turns(of_gate text, of_queue text, of_band int2, behind text, number int4) returns int4
language plpgsql as $$
declare
    moved int4 := 0;
    here int4;
begin
    while moved < number loop
        with recursive onward as (
            (select r.tenant from tidemill.ready r
            where r.line = 2 and r.gate = of_gate and r.queue = of_queue and r.priority = of_band
                and r.tenant > let_turns.behind
            order by r.tenant limit 1)
            union all
            (select n.tenant from onward v, lateral (
                select r.tenant from tidemill.ready r
                where r.line = 2 and r.gate = of_gate and r.queue = of_queue and r.priority = of_band
                    and r.tenant > v.tenant
                order by r.tenant limit 1
            ) n)
        ), first_part as materialized (
            select v.tenant from onward v limit number - moved
        ), anew as (
            (select r.tenant from tidemill.ready r
            where r.line = 2 and r.gate = of_gate and r.queue = of_queue and r.priority = of_band
                and r.tenant <= let_turns.behind
            order by r.tenant limit 1)
            union all
            (select n.tenant from anew v, lateral (
                select r.tenant from tidemill.ready r
                where r.line = 2 and r.gate = of_gate and r.queue = of_queue and r.priority = of_band
                    and r.tenant > v.tenant and r.tenant <= let_turns.behind
                order by r.tenant limit 1
            ) n)
        ), second_part as materialized (
            select v.tenant from anew v limit number - moved - (select count(*) from first_part)
        ), visit as materialized (
            select f.tenant, row_number() over () as place, count(*) over () as all_here from (
                select tenant from first_part union all select tenant from second_part) f
        ), pick as materialized (
            select r.seq from visit v, lateral (
                select r.seq from tidemill.ready r
                where r.line = 2 and r.gate = of_gate and r.queue = of_queue and r.priority = of_band
                    and r.tenant = v.tenant
                order by r.run_at, r.seq + 0
                limit (number - moved) / v.all_here + case when v.place <= (number - moved) % v.all_here then 1 else 0 end
                for update skip locked
            ) r
        ), gone as (
            update tidemill.ready r set line = 1 where r.seq = any (array(select p.seq from pick p))
            returning 1
        )
        select count(*) into here from gone;
        moved := moved + here;
        exit when here = 0;
    end loop;
    return moved;
end $$;

-- Lets so many through that a gate holds, of these lanes of these queues, by their weights (null: in their order), and by
-- turns of their tenants: whoever has many waiting must not keep others from a limit that they share. Answers how many.
create function tidemill.let_fair(
    of_gate text, of_queues text[], queues text[], bands int2[], weights int4[], behinds text[], room int4
) returns int4 language plpgsql as $$
declare
    lanes int4[] := array(
        select l.lane from unnest(queues, bands) with ordinality l(queue, band, lane)
        where l.queue = any (of_queues) and exists (
            select from tidemill.ready r
            where r.line = 2 and r.gate = of_gate and r.queue = l.queue and r.priority = l.band)
        order by l.lane);
    still int4[];
    quotas int4[];
    moved int4 := 0;
    here int4;
begin
    while moved < room and cardinality(lanes) > 0 loop
        if weights is null then
            quotas := array_fill(0, array[cardinality(lanes)]);
            quotas[1] := room - moved;
        else
            quotas := tidemill.allot(room - moved, array(
                select weights[l.lane] from unnest(lanes) with ordinality l(lane, place) order by l.place));
        end if;
        still := '{}';
        for i in 1..cardinality(lanes) loop
            here := tidemill.let_turns(
                of_gate, queues[lanes[i]], bands[lanes[i]], coalesce(behinds[lanes[i]], ''), quotas[i]);
            moved := moved + here;
            if here = quotas[i] then
                still := still || lanes[i];
            end if;
        end loop;
        lanes := still;
    end loop;
    return moved;
end $$;

-- Lets those through that gates hold and that may pass by now; answers nothing, claims find them in their lanes.
-- Only gates of these limits whose time has come are looked at, a thousand at once, but for those at which another is.
-- Where those of several lanes or tenants are held, they take turns.
create function tidemill.let_through(
    at timestamptz, limits tidemill.limit[], lanes text[], bands int2[], weights int4[], behinds text[]
) returns void language plpgsql as $$
declare
    l tidemill.limit;
    due text[];
    beside text[];
    queues text[];
    mixed record;
    shared text[];
    passed int4[];
begin
    for l in select distinct on (u.gate) u.* from unnest(limits) u loop
        continue when not exists (
            select from tidemill.gate g where g.base = l.gate and g.opens_at <= let_through.at);
        due := tidemill.due_gates(let_through.at, array[l.gate]);
        if l.gate = any (due) then
            -- Nobody tells when a stowaway ends: whoever is held beside one looks again. Not only as many as there is
            -- room for, as at a gate that stays open until it is full: those may be stopped elsewhere, and then nobody
            -- would look again for the sake of the others.
            beside := array(
                select distinct s.gate from tidemill.stowaway s where s.base = l.gate and s.gate <> all (due)
                    and exists (select from tidemill.ready r where r.line = 2 and r.gate = s.gate offset 0) limit 1000);
            update tidemill.ready s set line = 1, gate = '' where s.seq = any (array(
                select r.seq from tidemill.rooms(let_through.at, beside, l) m, lateral (
                    select r.seq from tidemill.ready r where m.room > 0 and r.line = 2 and r.gate = m.gate
                    order by r.queue, r.priority, r.tenant, r.run_at, r.seq + 0 limit 1000 for update skip locked
                ) r));
        end if;
        queues := array(select u.queue from unnest(limits) u where u.gate = l.gate);
        shared := '{}';
        passed := '{}';
        for mixed in
            select r.gate as name, least(r.room, 1000)::int4 as room from tidemill.rooms(let_through.at, due, l) r, lateral (
                select s.queue, s.priority, s.tenant from tidemill.ready s where s.line = 2 and s.gate = r.gate
                order by s.queue, s.priority, s.tenant limit 1
            ) f
            where r.room > 0 and exists (
                select from tidemill.ready s where s.line = 2 and s.gate = r.gate
                    and (s.queue, s.priority, s.tenant) > (f.queue, f.priority, f.tenant) offset 0)
        loop
            shared := shared || mixed.name;
            passed := passed || tidemill.let_fair(
                mixed.name, queues, lanes, let_through.bands, let_through.weights, behinds, mixed.room);
        end loop;
        with room as materialized (
            select r.gate as name, least(r.room, 1000) - coalesce(m.passed, 0) as room, m.name is not null as is_shared
            from tidemill.rooms(let_through.at, due, l) r
            left join unnest(shared, passed) m(name, passed) on m.name = r.gate
        ), pick as materialized (
            select r.name, s.seq from room r, lateral (
                select s.queue, s.priority, s.tenant from tidemill.ready s where s.line = 2 and s.gate = r.name
                order by s.queue, s.priority, s.tenant limit 1
            ) f, lateral (
                select s.seq from tidemill.ready s
                where s.line = 2 and s.gate = r.name and s.queue = f.queue and s.priority = f.priority
                    and s.tenant = f.tenant
                order by s.run_at, s.seq + 0 limit greatest(r.room, 0) for update skip locked
            ) s
            where not r.is_shared and f.queue = any (queues)
        ), roomy as materialized (
            -- All of them: nobody of these queues is held any more, as far as this can be seen. One that is in other
            -- hands for a moment still is: a claim locks what it finds before it sees that it is held since.
            select r.name, r.room, exists (
                select from tidemill.ready s where s.line = 2 and s.gate = r.name and s.queue <> all (queues) offset 0
            ) as has_others
            from room r where r.room > (select count(*) from pick p where p.name = r.name)
                and not exists (
                    select from tidemill.ready s where s.line = 2 and s.gate = r.name and s.queue = any (queues)
                        and s.seq <> all (array(select p.seq from pick p)) offset 0)
        ), others as materialized (
            select s.seq from roomy r, tidemill.held_queues(r.name) q(queue), lateral (
                select s.seq from tidemill.ready s where s.line = 2 and s.gate = r.name and s.queue = q.queue
                order by s.priority, s.tenant, s.run_at, s.seq + 0 limit r.room for update skip locked
            ) s
            where r.has_others and q.queue <> all (queues)
        ), moved as (
            update tidemill.ready s set line = 1, gate = ''
            where s.seq = any (array(select seq from pick union all select seq from others))
        )
        -- This gate must not keep us coming back for the sake of queues that we do not serve, nor hide anybody from
        -- those who do: of each as many are in their lanes now as may pass.
        update tidemill.gate g set opens_at = coalesce(
            case when g.name = l.gate then tidemill.next_look(let_through.at, l.gate) end,
            case when r.has_others then let_through.at + interval '5 s' end)
        from roomy r where g.name = r.name and g.name = any (due);
    end loop;
end $$;

-- Notes of open gates that let nobody through any more when the clock opens them again, if it does. A gate that
-- still has room stays open: those who were let through may be held elsewhere, and others may pass.
create function tidemill.close_gates(at timestamptz, limits tidemill.limit[]) returns void
language plpgsql as $$
declare
    due text[] := tidemill.due_gates(close_gates.at, array(select l.gate from unnest(limits) l));
begin
    update tidemill.gate g
    set opens_at = case
        when c.closed_until > close_gates.at then c.closed_until
        when c.next_cell > close_gates.at then c.next_cell
        when g.name = g.base then tidemill.next_look(close_gates.at, g.base)
    end
    from (
        select o.name, r.room, tidemill.next_cell(o.tat, l.every_us, l.burst) as next_cell,
            tidemill.closed_until(o.shut_until, o.pause_until, l) as closed_until
        from (select distinct on (l.gate) l.* from unnest(limits) l) l, lateral (
            select o.name, o.tat, o.shut_until, o.pause_until from unnest(due) d(name) join tidemill.gate o on o.name = d.name and o.base = l.gate
        ) o, tidemill.rooms(close_gates.at, array[o.name], l) r
    ) c
    where g.name = c.name and c.room <= 0;
end $$;

-- The queues of those that a gate holds, found by one look each.
create function tidemill.held_queues(of_gate text) returns setof text language plpgsql stable as $$
declare
    found_queue text := '';
begin
    loop
        select min(r.queue) into found_queue from tidemill.ready r
        where r.line = 2 and r.gate = of_gate and r.queue > found_queue;
        exit when found_queue is null;
        return next found_queue;
    end loop;
end $$;

-- Something came out of these gates: where others are held or were turned away, it is worth looking again.
-- Answers their queues. Comes after the settle has committed, and takes its turn behind the claims under way, if they
-- take turns, so that what they hold back meanwhile is seen.
create function tidemill.come_out(at timestamptz, gates text[]) returns setof text language plpgsql as $$
declare
    present timestamptz := coalesce(come_out.at, now());
begin
    perform tidemill.take_turns('{}', array(select distinct split_part(g, chr(31), 1) from unnest(gates) g));
    if not exists (select from tidemill.ready r where r.line = 2)
        and not exists (select from tidemill.gate x where x.waiters <> '{}') then
        return;
    end if;
    return query
    with held as materialized (
        select t.gate, h.queue from unnest(gates) t(gate), tidemill.held_queues(t.gate) h(queue)
    ), opened as (
        insert into tidemill.gate as x (name, base, opens_at)
        select h.gate, split_part(h.gate, chr(31), 1), present from (select distinct gate from held) h
        order by h.gate collate "C"
        on conflict (name) do update set opens_at = case
            when greatest(x.shut_until, x.pause_until) > present then greatest(x.shut_until, x.pause_until)
            else least(coalesce(x.opens_at, present), present) end
    ), asked as (
        select x.name, x.waiters from tidemill.gate x
        where x.name = any (gates) and x.waiters <> '{}' order by x.name for update
    ), told as (
        update tidemill.gate x set waiters = '{}' from asked a
        where x.name = a.name and not exists (select from held h where h.gate = x.name)
    )
    select h.queue from held h union select w from asked a, unnest(a.waiters) w;
end $$;

-- A claim held jobs at these gates, and has committed since: somebody may have come out of one before that was to be
-- seen. Answers the queues that have reason to look again.
create function tidemill.look_back(at timestamptz, under json, stops text[]) returns setof text language plpgsql as $$
declare
    open text[] := array(
        select r.gate
        from (
            select distinct on (l.gate) l as rule, l.gate
            from json_populate_recordset(null::tidemill.limit, under) l where l.per in (1, 2)
        ) l, tidemill.rooms(coalesce(look_back.at, now()), array(
            select s from unnest(stops) s where split_part(s, chr(31), 1) = l.gate), l.rule) r
        where r.room > 0);
begin
    if cardinality(open) > 0 then
        return query select tidemill.come_out(look_back.at, open);
    end if;
end $$;

-- Counts how attempts ended, by the leases they were of, and judges: too many failures in a window shut a gate; then one
-- probe decides. Whatever else comes in meanwhile began before, and says nothing new.
create function tidemill.judge(
    at timestamptz, gates text[], tokens int8[], goods int4[], bads int4[], percents int4[], windows_us int8[],
    leasts int4[], opens_us int8[]
) returns text language plpgsql as $$
declare
    present timestamptz := coalesce(judge.at, now());
    v record;
    g tidemill.gate;
    is_tripped boolean;
begin
    for v in
        select e.gate, sum(e.good)::int4 as good, sum(e.bad)::int4 as bad, min(e.percent) as percent,
            min(e.window_us) as window_us, min(e.least) as least, min(e.open_us) as open_us,
            array_agg(e.token) as tokens, array_agg(e.good) as goods, array_agg(e.bad) as bads
        from unnest(gates, judge.tokens, judge.goods, judge.bads, percents, windows_us, leasts, opens_us)
            e(gate, token, good, bad, percent, window_us, least, open_us)
        group by e.gate order by e.gate collate "C"
    loop
        insert into tidemill.gate (name, base) values (v.gate, split_part(v.gate, chr(31), 1)) on conflict do nothing;
        select x.* into g from tidemill.gate x where x.name = v.gate for update;
        is_tripped := false;
        if g.probing = 0 then
            if g.window_at is null or g.window_at <= present - v.window_us * interval '1 us' or g.window_at > present then
                g.window_at := present;
                g.good := 0;
                g.bad := 0;
            end if;
            g.good := g.good + v.good;
            g.bad := g.bad + v.bad;
            is_tripped := g.good + g.bad >= greatest(v.least, 1)
                and g.bad::int8 * 100 >= v.percent::int8 * (g.good + g.bad);
        elsif g.probing = 2 and g.probe = any (v.tokens) then
            is_tripped := v.bads[array_position(v.tokens, g.probe)] > 0;
            -- A probe that says nothing is followed by another.
            g.probing := case when v.goods[array_position(v.tokens, g.probe)] > 0 then 0 else 1 end;
            g.probe := null;
            g.window_at := null;
            g.shut_until := null;
            g.opens_at := greatest(present, g.pause_until);
        else
            continue;
        end if;
        if is_tripped then
            g.probing := 1;
            g.shut_until := present + v.open_us * interval '1 us';
            g.opens_at := greatest(g.shut_until, g.pause_until);
        end if;
        update tidemill.gate x set probing = g.probing, probe = g.probe, good = g.good, bad = g.bad,
            window_at = g.window_at, shut_until = g.shut_until, opens_at = g.opens_at
        where x.name = g.name;
    end loop;
    return null;
end $$;

-- A claim of this queue was turned away by gates of the whole lane; answers whether that is news.
create function tidemill.turn_away(of_queue text, gates text[]) returns boolean language plpgsql as $$
begin
    insert into tidemill.gate as x (name, base, waiters)
    select g, split_part(g, chr(31), 1), array[of_queue] from unnest(gates) g
    on conflict (name) do update set waiters = x.waiters || excluded.waiters
    where not x.waiters @> excluded.waiters;
    return found;
end $$;

-- Divides slots by weight. What cannot be divided goes, one by one, to the first ones; a weight of 0 gets nothing,
-- unless all have it. As core's share.rs does.
create function tidemill.allot(slots int4, weights int4[]) returns int4[] language plpgsql immutable as $$
declare
    sum int8 := (select sum(w) from unnest(weights) w);
    shares int4[] := '{}';
    rest int4 := slots;
begin
    for i in 1..cardinality(weights) loop
        shares[i] := case when sum = 0 then slots / cardinality(weights) else slots::int8 * weights[i] / sum end;
        rest := rest - shares[i];
    end loop;
    for i in 1..cardinality(weights) loop
        exit when rest <= 0;
        if weights[i] > 0 or sum = 0 then
            shares[i] := shares[i] + 1;
            rest := rest - 1;
        end if;
    end loop;
    return shares;
end $$;

-- Divides slots by turns, each of as many as the weight, `left_of_first` of the first one's if that is not 0. The same as
-- `turns` of `core`.
create function tidemill.turns(slots int4, weights int4[], left_of_first int4) returns int4[] language plpgsql immutable as $$
declare
    sum int8 := (select coalesce(sum(w), 0) from unnest(weights) w);
    free int4 := slots;
    shares int4[] := '{}';
begin
    if left_of_first = 0 and slots >= sum then
        return array(select (w * (slots / greatest(sum, 1)))::int4 from unnest(weights) w);
    end if;
    for i in 1..cardinality(weights) loop
        shares[i] := least(free, case when i = 1 and left_of_first > 0 then left_of_first else weights[i] end);
        free := free - shares[i];
    end loop;
    return shares;
end $$;

-- Lanes that have something due, by their numbers, and whether it is (also) of tenants. `lows` says where to
-- begin to look for jobs without a tenant.
create function tidemill.due_lanes(at timestamptz, queues text[], bands int2[], lows timestamptz[], kinds text[])
returns table (lane int8, crowded boolean) language sql stable as $$
    -- By a look each: for an `exists` a plan made while the table was empty would make a hash table of all that is due.
    select l.lane, t.crowded
    from unnest(queues, bands, lows) with ordinality l(queue, band, low, lane), lateral (
        select coalesce((
            select true from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.tenant <> '' and r.line < 2
                and r.run_at <= at and (kinds is null or r.kind = any (kinds)) limit 1), false) as crowded
    ) t
    where t.crowded or coalesce((
        select true from tidemill.ready r
        where r.queue = l.queue and r.priority = l.band and r.tenant = '' and r.line < 2
            and r.run_at <= at and r.run_at >= coalesce(l.low, '-infinity')
            and (kinds is null or r.kind = any (kinds)) limit 1), false)
    order by l.lane
$$;

-- Tenants of a lane that have something due, in turn: those behind `behind` first, then from the beginning ('' is
-- who has no tenant). Looks at no more than `visits_max`, because ten thousand may only wait for the clock: those are
-- `idle`. `last` is the last one looked at, `is_round` says that all were.
create function tidemill.tenants_in_turn(
    at timestamptz, of_queue text, of_band int2, behind text, visits_max int4,
    out tenants text[], out last text, out is_round boolean, out idle text[]
) language sql stable as $$
    with recursive onward as (
        (select r.tenant, r.run_at from tidemill.ready r
        where r.queue = of_queue and r.priority = of_band and r.line < 2 and r.tenant > behind
        order by r.tenant, r.run_at limit 1)
        union all
        (select n.* from onward v, lateral (
            select r.tenant, r.run_at from tidemill.ready r
            where r.queue = of_queue and r.priority = of_band and r.line < 2 and r.tenant > v.tenant
            order by r.tenant, r.run_at limit 1
        ) n)
    ), first_part as materialized (
        select v.* from onward v limit visits_max
    ), anew as (
        (select r.tenant, r.run_at from tidemill.ready r
        where r.queue = of_queue and r.priority = of_band and r.line < 2 and r.tenant <= behind
        order by r.tenant, r.run_at limit 1)
        union all
        (select n.* from anew v, lateral (
            select r.tenant, r.run_at from tidemill.ready r
            where r.queue = of_queue and r.priority = of_band and r.line < 2 and r.tenant > v.tenant
                and r.tenant <= behind
            order by r.tenant, r.run_at limit 1
        ) n)
    ), second_part as materialized (
        select v.* from anew v limit visits_max - (select count(*) from first_part)
    ), visit as materialized (
        select f.*, row_number() over () as place from (
            select * from first_part union all select * from second_part) f
    )
    select coalesce(array_agg(v.tenant order by v.place) filter (where v.run_at <= at), '{}'),
        (array_agg(v.tenant order by v.place desc))[1], count(*) < visits_max,
        coalesce(array_agg(v.tenant order by v.place) filter (where v.run_at > at and v.tenant <> ''), '{}')
    from visit v
$$;

-- Lays aside what these tenants of a lane have waiting for the clock, at most so many sheaves: turns pass it by until it
-- is due. Answers how many.
create function tidemill.lay_aside(at timestamptz, of_queue text, of_band int2, idle text[], most int4) returns int4
language plpgsql as $$
declare
    laid int4;
begin
    update tidemill.ready r set line = 3 where r.seq = any (array(
        select s.seq from unnest(idle) t(tenant), lateral (
            select r.seq from tidemill.ready r
            where r.queue = of_queue and r.priority = of_band and r.tenant = t.tenant and r.line < 2
                and r.run_at > lay_aside.at
            order by r.run_at limit most
            for update skip locked
        ) s limit most));
    get diagnostics laid = row_count;
    return laid;
end $$;

-- Brings back what was laid aside in these lanes and is due by now, at most so many sheaves.
create function tidemill.bring_back(at timestamptz, queues text[], bands int2[], most int4) returns void
language plpgsql as $$
begin
    update tidemill.ready r set line = 0 where r.seq = any (array(
        select s.seq from unnest(queues, bands) l(queue, band), lateral (
            select r.seq from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.line = 3 and r.run_at <= bring_back.at
            order by r.run_at limit most
            for update skip locked
        ) s limit most));
end $$;

-- Adds to the gates that jobs go through those of these limits, as far as they mean them.
create function tidemill.name_gates(
    limits tidemill.limit[], through text[], kinds text[], tenants text[], keys text[]
) returns text[] language plpgsql stable as $$
begin
    return array(
        select j.through || coalesce(string_agg(l.gate || case l.per
            when 1 then chr(31) || nullif(j.tenant, '')
            when 2 then chr(31) || nullif(j.key, '')
            else ''
        end || chr(30), ''), '')
        from unnest(name_gates.through, kinds, tenants, keys) with ordinality j(through, kind, tenant, key, place)
        left join unnest(limits) l on l.kind is null or l.kind = j.kind
        group by j.place, j.through order by j.place);
end $$;

-- Takes what waits in one lane, as far as the limits of its queue let it pass; holds the others at their gates.
-- Looks at no more than `found_max` sheaves of each tenant; `met` of them, with `ids`, were there. `counted` are the
-- limits whose gates are locked first; sheaves of gates that are in other hands, `over`, are passed over, and stay in line.
-- Without any of them everything passes. Of `assured` ones it is only written down who goes in.
create function tidemill.take_sheaves(
    at timestamptz, limits tidemill.limit[], fine tidemill.limit[], counted tidemill.limit[], assured tidemill.limit[],
    lease int8, of_queue text, of_band int2, low timestamptz, kinds text[], of_tenants text[], shares int4[], found_max int4,
    wanted int4, wide text, again boolean, inout over int4,
    out met int4, out ids int4, out last_tenant text, out taken uuid[], out attempts int2[], out losts int2[],
    out dues timestamptz[], out passed text[], out gates text[], out stops text[]
) language plpgsql as $$
declare
    c record;
    v record;
    backs text[]; -- gates by which sheaves came that are not taken whole
begin
    with sheaf as materialized (
        select r.seq, r.run_at, r.attempt, r.lost, r.kind, r.tenant, r.key, r.ids[r.taken + 1] as id, r.number, r.line,
            case when r.line = 1 and split_part(r.gate, chr(31), 1) = any (array(select f.gate from unnest(fine) f))
                then r.gate end as came_by,
            t.share, t.turn
        from unnest(of_tenants, shares) with ordinality t(tenant, share, turn), lateral (
            select r.*, cardinality(r.ids) - r.taken as number from tidemill.ready r
            where r.queue = of_queue and r.priority = of_band and r.tenant = t.tenant
                and r.line < 2 and r.run_at <= take_sheaves.at
                and r.run_at >= coalesce(case t.tenant when '' then low end, '-infinity')
                and (kinds is null or r.kind = any (kinds))
            order by r.run_at, r.seq + 0
            limit least(found_max, greatest(t.share, 1)) + take_sheaves.over
            for update skip locked
        ) r
    ), needed as materialized (
        select s.seq, s.line, tidemill.turn_of(l.gate || chr(31) || case l.per when 1 then s.tenant else s.key end) as turn
        from sheaf s, unnest(counted) l
        where (l.kind is null or l.kind = s.kind) and case l.per when 1 then s.tenant else s.key end <> ''
    ), got as materialized (
        select t.number from (select distinct n.turn from needed n) n, lateral (
            select * from tidemill.turn t where t.number = n.turn limit 1 for update skip locked
        ) t
    ), busy as materialized (
        select array_agg(n.seq) as seqs, array_agg(n.seq) filter (where n.line = 0) as in_line
        from needed n where n.turn not in (select g.number from got g)
    ), of_tenant as (
        select s.*, least(s.number, greatest(s.share, 1) + s.number - sum(s.number) over (
            partition by s.turn order by s.run_at, s.seq rows unbounded preceding)) as share_left
        from sheaf s where (s.seq = any ((select b.seqs from busy b)::int8[])) is not true
    ), of_lane as (
        -- In the same order, so that it is sorted once.
        select t.*, least(t.share_left, wanted + greatest(t.share_left, 0) - sum(greatest(t.share_left, 0)) over (
            order by t.turn, t.run_at, t.seq rows unbounded preceding)) as number_here
        from of_tenant t
    )
    select count(*) as met, sum(l.number) as ids, (array_agg(l.tenant))[count(*)] as last_tenant,
        bool_and(l.number = 1) as are_single,
        (select b.seqs from busy b) as busy, (select b.in_line from busy b) as busy_in_line,
        array_agg(l.seq) filter (where l.number_here > 0) as seqs,
        array_agg(l.number::int4) filter (where l.number_here > 0) as wholes,
        array_agg(l.number_here::int4) filter (where l.number_here > 0) as numbers,
        array_agg(l.kind) filter (where l.number_here > 0) as kinds,
        array_agg(l.tenant) filter (where l.number_here > 0) as tenants,
        array_agg(l.key) filter (where l.number_here > 0) as keys,
        array_agg(l.id) filter (where l.number_here > 0) as firsts,
        array_agg(l.run_at) filter (where l.number_here > 0) as dues,
        array_agg(l.lost) filter (where l.number_here > 0) as losts,
        array_agg(l.came_by) filter (where l.number_here > 0) as cames_by,
        array_agg(l.attempt) filter (where l.number_here > 0) as attempts
    into c from (select * from of_lane order by turn, run_at, seq) l;
    take_sheaves.over := coalesce(cardinality(c.busy), 0);
    if c.busy_in_line is not null then
        -- Claims may go by where it stood.
        update tidemill.ready r set line = 1 where r.seq = any (c.busy_in_line);
    end if;
    take_sheaves.met := c.met + over;
    take_sheaves.ids := coalesce(c.ids, 0);
    take_sheaves.last_tenant := c.last_tenant;
    if c.seqs is null then
        return;
    end if;
    if cardinality(fine) > 0 then
        select p.* into v from tidemill.pass(
            take_sheaves.at, fine, of_queue, c.numbers, c.kinds, c.tenants, c.keys, c.attempts) p;
    else
        select c.numbers as passed, array_fill(''::text, array[cardinality(c.numbers)]) as through,
            array_fill(null::text, array[cardinality(c.numbers)]) as stops into v;
    end if;
    if cardinality(assured) > 0 then
        v.through := tidemill.name_gates(assured, v.through, c.kinds, c.tenants, c.keys);
    end if;
    if c.are_single then
        select array_agg(p.id), array_agg(p.attempt), array_agg(p.lost), array_agg(p.run_at),
            array_agg(wide || p.through)
        into take_sheaves.taken, take_sheaves.attempts, take_sheaves.losts, take_sheaves.dues, take_sheaves.passed
        from unnest(c.firsts, c.attempts, c.losts, c.dues, v.passed, v.through)
            p(id, attempt, lost, run_at, passed, through)
        where p.passed > 0;
    else
        select array_agg(t.id), array_agg(t.attempt), array_agg(t.lost), array_agg(t.run_at),
            array_agg(wide || t.through)
        into take_sheaves.taken, take_sheaves.attempts, take_sheaves.losts, take_sheaves.dues, take_sheaves.passed
        from (
            select i.id, r.attempt, r.lost, r.run_at, p.through
            from unnest(c.seqs, v.passed, v.through) with ordinality p(seq, passed, through, place), lateral (
                select * from tidemill.ready r where r.seq = p.seq limit 1
            ) r, unnest(r.ids[r.taken + 1:r.taken + p.passed]) with ordinality i(id, at)
            where p.passed > 0 order by p.place, i.at
        ) t;
    end if;
    if take_sheaves.taken is not null and cardinality(fine || assured) > 0 then
        take_sheaves.gates := tidemill.go_in(take_sheaves.at, limits, lease, v.through, v.passed, again);
    end if;
    if v.passed = c.wholes then
        delete from tidemill.ready r where r.seq = any (c.seqs);
        return;
    end if;
    delete from tidemill.ready r where r.seq = any (array(
        select p.seq from unnest(c.seqs, c.wholes, v.passed) p(seq, whole, passed) where p.passed = p.whole));
    -- By a look each: joined by a plan made while the table was empty, each would be compared with each. They are locked,
    -- so they stay where they are found.
    with cut as materialized (
        select x.ctid as spot, p.passed, coalesce(p.stop, p.came_by) as gate
        from unnest(c.seqs, c.wholes, v.passed, v.stops, c.cames_by) p(seq, whole, passed, stop, came_by), lateral (
            select x.ctid from tidemill.ready x where x.seq = p.seq limit 1
        ) x
        where p.passed < p.whole and (p.passed > 0 or p.stop is not null)
    )
    -- Others have turns at the gate by which it came.
    update tidemill.ready r set taken = r.taken + k.passed, gate = coalesce(k.gate, ''),
        line = case when k.gate is null then r.line else 2 end
    from cut k where r.ctid = k.spot;
    backs := array(
        select distinct p.came_by from unnest(c.wholes, v.passed, v.stops, c.cames_by) p(whole, passed, stop, came_by)
        where p.passed < p.whole and p.passed > 0 and p.stop is null and p.came_by is not null);
    if cardinality(backs) > 0 then
        -- Gates by tenant or key are looked back at when this has committed: other claims may be at them.
        insert into tidemill.gate as x (name, base, opens_at)
        select b, split_part(b, chr(31), 1), take_sheaves.at from unnest(backs) b
        where split_part(b, chr(31), 1) <> all (array(select l.gate from unnest(fine) l where l.per in (1, 2)))
        order by b collate "C"
        on conflict (name) do update set opens_at = least(x.opens_at, excluded.opens_at);
    end if;
    take_sheaves.stops := array(select distinct s from unnest(v.stops) s where s is not null);
    if cardinality(stops) > 0 then
        perform tidemill.note_opening(take_sheaves.at, limits, stops);
    end if;
    take_sheaves.stops := take_sheaves.stops || backs;
end $$;

-- Lets retries pass that wait for others to pay for them, up to `number` of each queue that is not full: there is
-- a slot that no first attempt wants.
create function tidemill.let_retries(
    limits tidemill.limit[], full_queues text[], number int4, lanes text[], bands int2[], weights int4[], behinds text[]
) returns boolean language plpgsql as $$
begin
    return (
        select coalesce(sum(tidemill.let_fair(
            l.gate, array[l.queue], lanes, let_retries.bands, let_retries.weights, behinds, number)), 0) > 0
        from unnest(limits) l where l.per = 3 and l.queue <> all (full_queues));
end $$;

-- Where to begin to look in lanes, so that those are met who were let through a gate.
create function tidemill.lower(queues text[], bands int2[], lows timestamptz[]) returns timestamptz[]
language plpgsql stable as $$
begin
    return array(
        select case when l.low is not null then least(l.low, (
            select min(r.run_at) from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.line = 1)) end
        from unnest(queues, bands, lows) with ordinality l(queue, band, low, lane) order by l.lane);
end $$;

-- Takes due jobs of these lanes under one new lease, for a registered worker; waits for nobody but, under limits, for its
-- turn. Queues that have something due share `jobs_max` alike, their lanes by `weights` (null: in their order), tenants
-- share what their lane gets; what is left goes to the lanes in their order.
-- `lows` says where in each lane to begin; where nothing is found so and `heads` allows it, a second look
-- begins at the heads. `behinds` are, per lane, those behind whom to go on (null: any); `holders` the tenants whose turns
-- last, for `lefts` jobs more; `favoured` ones (by queue and name) have another weight than 1. `under` are the limits,
-- from the finest to the coarsest. If it `trusts`, rates that seem to have room are asked when all is taken, and a claim
-- that took more than they let pass ends with TM003.
-- Answers about itself (`is_whole`: it looked from the heads; `sheaves` with `ids` were found; `due`: something is due,
-- but in the hands of another; `served`: `behinds` or, where nobody was known, or so many had nothing due that it is to go
-- on behind them, others; `lanes`: those that had something due; `stops`: gates at which it held somebody, to look back
-- at; `bare`: it has a turn for which others wait), and what was taken.
-- A claim that was made up by another edition of the rules than the present one (`by_edition`; null: by none) is
-- `outdated`, and takes nothing; so does one of a worker that would hold more than its reach: `beyond` says how many. Only
-- claims by an edition leave out limits that cannot be exceeded: nobody looks for stowaways of others than those set.
create function tidemill.take(
    at timestamptz, asker uuid, ask uuid, queues text[], bands int2[], weights int4[], lows timestamptz[],
    heads boolean, kinds text[], behinds text[], holders text[], lefts int4[], favoured text[], favours int4[],
    sheaves_max int4, jobs_max int4, under json, by_edition int8, trusts boolean,
    out present timestamptz, out token int8, out is_whole boolean, out sheaves int4, out ids int4, out due boolean,
    out next_due timestamptz, out served text[], out lanes int4[], out stops text[], out outdated boolean,
    out beyond int4, out bare boolean, out taken uuid[], out attempts int2[], out losts int2[], out dues timestamptz[],
    out passed text[]
) language plpgsql as $$
#variable_conflict use_column
declare
    crowded boolean[];
    quotas int4[];
    lane int4;
    first_round int4 := 2;
    tenants text[];
    last_visited text;
    is_round boolean;
    shares int4[];
    sheaf record;
    missing int4 := jobs_max;
    wanted int4;
    last_tenant text;
    of_tenant int4;
    taken_here int4;
    visits int4;
    found_max int4;
    found_here int4;
    emptied int8[];
    -- Under limits:
    rules tidemill.limit[]; -- all of them; those that are out of reach count nobody
    limits tidemill.limit[]; -- those that count, or do more
    judged tidemill.limit[] := '{}'; -- those of them that this claim could exceed
    assured tidemill.limit[] := '{}'; -- the others
    trusted tidemill.limit[] := '{}'; -- those of them whose rate is asked when all is taken
    calm text[]; -- what those may be
    watched tidemill.limit[] := '{}'; -- all that are not trusted: of those no gate is written to before the end
    named tidemill.limit[]; -- of these, those of a lane that do not mean each of its jobs
    by_part boolean;
    names text;
    through text[];
    numbers int4[];
    after int4; -- how many its worker holds then, at most
    rule tidemill.limit;
    fine tidemill.limit[];
    lease int8;
    counted tidemill.limit[];
    turns text[] := '{}';
    again boolean;
    inside text[];
    are_retries_paid boolean;
    wide text;
    rooms record;
    rounds int4;
    over int4 := 0;
    before int4;
    all_reach int8 := 9223372036854775807;
    own_reach int4;
    beat_at timestamptz;
    is_news boolean := false;
    bound int4[] := '{}';
    full_lanes int4[] := '{}'; -- those of them whose room was all taken
    edition int8;
    due_here int4[];
    is_left boolean;
    is_cut boolean := false;
    -- Tenants that wait for the clock:
    spare_visits constant int4 := 64;
    visits_max constant int4 := 4 * jobs_max + 2000;
    places text[] := behinds; -- per lane, the tenant that was met last
    aside_max constant int4 := 1000;
    idle text[];
    laid int4 := 0;
begin
    take.present := coalesce(take.at, now());
    perform tidemill.lock_rules(true);
    take.sheaves := 0;
    take.ids := 0;
    take.due := false;
    take.served := behinds;
    take.is_whole := not exists (select from unnest(lows) low where low is not null);
    -- Held to the end: whoever gives this worker up sees the lease, or there is none.
    select b.edition, w.reach, w.beat_at into edition, own_reach, beat_at from tidemill.worker w, tidemill.rulebook b
    where w.id = asker and b.is_it for key share of w;
    take.outdated := edition <> by_edition;
    if edition is null or take.outdated then
        return;
    end if;
    if under is not null then
        rules := array(select l from json_populate_recordset(null::tidemill.limit, under) l);
        if by_edition is not null and exists (select from unnest(rules) l where l.most is not null) then
            -- One after the other: what a worker holds is seen by its next claim.
            perform pg_advisory_xact_lock(hashtextextended('tidemill claims of ' || asker, 0));
            all_reach := (select sum(w.reach) from tidemill.worker w);
            take.beyond := jobs_max + tidemill.held_by(asker, 2147483647);
            -- A look at what has ended has its price at each claim; to hold more is free where it brings no limit within
            -- reach.
            if take.beyond > own_reach and exists (
                select from unnest(rules) l
                where l.most >= all_reach and l.most - all_reach < greatest(take.beyond, 2 * own_reach::int8) - own_reach
            ) then
                take.beyond := jobs_max + tidemill.held_by(asker, own_reach - jobs_max);
            end if;
            if take.beyond > own_reach then
                return;
            end if;
            after := take.beyond;
            take.beyond := null;
        end if;
        -- By one look: several queues may share a limit, which is trusted for all of them, or for none.
        calm := array(
            select distinct l.gate from unnest(rules) l
            where trusts and l.every_us is not null and tidemill.is_calm(take.present, l, jobs_max));
        for place in 1..cardinality(rules) loop
            rule := rules[place];
            if rule.most >= all_reach and coalesce(rule.every_us, rule.probe_us) is null and not rule.holds then
                rule.most := null;
                rules[place] := rule;
                watched := watched || rule;
                continue;
            end if;
            -- Others hold no more than their reach, and this worker no more than is left then.
            if coalesce(rule.percent, rule.probe_us) is not null or rule.holds
                or not coalesce(rule.most >= all_reach - own_reach + after, rule.most is null) then
                judged := judged || rule;
            elsif rule.every_us is null then
                assured := assured || rule;
            elsif rule.gate = any (calm) then
                trusted := trusted || rule;
                rule.every_us := null;
                assured := assured || rule;
                limits := limits || rule;
                continue;
            else
                judged := judged || rule;
            end if;
            limits := limits || rule;
            watched := watched || rule;
        end loop;
        are_retries_paid := exists (select from unnest(limits) l where l.per = 3);
        counted := array(select l from unnest(judged) l where l.per in (1, 2) and l.most < all_reach);
        turns := array(
            select l.gate from unnest(judged) l
            where l.per not in (1, 2) and l.most < all_reach
                or coalesce(l.every_us, l.probe_us, l.percent) is not null);
        perform tidemill.take_turns(turns, array(select l.gate from unnest(trusted) l));
        if exists (select from unnest(trusted) l where not tidemill.is_calm(take.present, l, jobs_max)) then
            -- Whoever had the turn has held somebody meanwhile.
            raise exception using errcode = 'TM003', message = 'a rate lets fewer pass';
        end if;
        perform tidemill.let_through(take.present, watched, queues, bands, weights, behinds);
    end if;
    if exists (
        select from unnest(queues, bands) l(queue, band), tidemill.ready r
        where r.queue = l.queue and r.priority = l.band and r.line = 3 and r.run_at <= take.present) then
        perform tidemill.bring_back(take.present, queues, bands, aside_max);
    end if;
    loop
        if rules is not null then
            lows := tidemill.lower(queues, bands, lows);
        end if;
        select coalesce(array_agg(d.lane), '{}'), array_agg(d.crowded) into take.lanes, crowded
        from tidemill.due_lanes(take.present, queues, bands, lows, kinds) d;
        exit when cardinality(take.lanes) > 0 or take.is_whole or not heads;
        take.is_whole := true;
        lows := array_fill(null::timestamptz, array[cardinality(queues)]);
    end loop;
    if weights is not null and cardinality(take.lanes) > 1 then
        -- Queues weigh alike, whichever of their lanes have something due; as core's `alike` does.
        quotas := tidemill.allot(jobs_max, array(
            select case when n.sum = 0 then 0 when n.of_all then n.weight
                else n.weight::int8 * 1000000 / n.sum end::int4
            from (
                select l.place, weights[l.lane] as weight,
                    sum(weights[l.lane]) over (partition by queues[l.lane]) as sum,
                    sum(weights[l.lane]) over (partition by queues[l.lane]) = sum(weights[l.lane]) over () as of_all
                from unnest(take.lanes) with ordinality l(lane, place)
            ) n
            order by n.place));
        first_round := 1;
    end if;
    due_here := take.lanes;
    -- By quota first, if there is one; then what is left, in order; then retries that nobody has paid for.
    for round in first_round..3 loop
        if round = 3 then
            -- A slot that no first attempt wants, of whichever band or queue, is free for them; not where something was
            -- taken and more may be left.
            exit when are_retries_paid is not true or is_cut and taken is not null
                or not tidemill.let_retries(limits, array(select queues[b] from unnest(full_lanes) b), missing,
                    queues, bands, weights, behinds);
            lows := tidemill.lower(queues, bands, lows);
            select coalesce(array_agg(d.lane), '{}'), array_agg(d.crowded) into due_here, crowded
            from tidemill.due_lanes(take.present, queues, bands, lows, kinds) d;
            take.lanes := array(select l from unnest(take.lanes) l union select d from unnest(due_here) d order by 1);
        end if;
        for at_lane in 1..cardinality(due_here) loop
            lane := due_here[at_lane];
            continue when lane = any (case when round = 3 then full_lanes else bound end);
            wanted := case when round = 1 then least(quotas[at_lane], missing) else missing end;
            found_max := sheaves_max;
            visits := 0;
            if limits is not null then
                -- Gates of the whole lane first: what they turn away stays where it is.
                select coalesce(min(g.room), missing) as room, array_agg(l.gate) filter (where g.room <= wanted) as tight
                into rooms from unnest(judged) l, tidemill.rooms(take.present, array[l.gate], l) g
                where l.queue = queues[lane] and l.kind is null and l.per = 0;
                wide := (select coalesce(string_agg(l.gate || chr(30), ''), '') from unnest(limits) l
                    where l.queue = queues[lane] and l.kind is null and l.per = 0);
                named := array(select l from unnest(assured) l
                    where l.queue = queues[lane] and not (l.kind is null and l.per = 0));
                by_part := exists (select from unnest(named) l where l.per > 0);
                through := '{}';
                numbers := '{}';
                fine := array(select l from unnest(judged) l
                    where l.queue = queues[lane] and not (l.kind is null and l.per = 0) and (l.per <> 3 or round < 3));
                if rooms.tight is not null and (rooms.room < wanted or round > 1) then
                    bound := bound || lane;
                    wanted := greatest(rooms.room, 0);
                    is_news := tidemill.turn_away(queues[lane], rooms.tight) or is_news;
                end if;
                rounds := 0;
                over := 0;
                before := coalesce(cardinality(taken), 0);
            end if;
            while wanted > 0 loop
                if crowded[at_lane] then
                    if places[lane] is null then
                        take.served[lane] := tidemill.any_tenant(queues[lane]);
                        places[lane] := take.served[lane];
                    end if;
                    select t.* into tenants, last_visited, is_round, idle from tidemill.tenants_in_turn(
                        take.present, queues[lane], bands[lane], places[lane], wanted + spare_visits) t;
                    if cardinality(idle) > spare_visits and laid < aside_max then
                        laid := laid + tidemill.lay_aside(
                            take.present, queues[lane], bands[lane], idle, aside_max - laid);
                    end if;
                    shares := tidemill.turns(wanted, array(
                        select coalesce(favours[array_position(favoured, queues[lane] || chr(31) || t)], 1)
                        from unnest(tenants) t), case when tenants[1] = holders[lane] then lefts[lane] else 0 end);
                    lefts[lane] := 0;
                else
                    tenants := '{""}';
                    shares := array[wanted];
                end if;
                found_here := 0;
                emptied := '{}';
                last_tenant := null;
                if cardinality(fine || named) > 0 then
                    again := lease is not null;
                    lease := coalesce(lease, nextval('tidemill.lease_token_seq'));
                end if;
                if cardinality(fine) > 0 or by_part or crowded[at_lane] then
                    select t.* into sheaf from tidemill.take_sheaves(take.present, limits, fine,
                        array(select l from unnest(counted) l where l.queue = queues[lane]), named, lease, queues[lane],
                        bands[lane], lows[lane], kinds, tenants, shares, found_max, wanted, wide, again, over) t;
                    found_here := sheaf.met;
                    over := sheaf.over;
                    take.stops := nullif(take.stops || sheaf.stops, '{}');
                    last_tenant := sheaf.last_tenant;
                    take.ids := take.ids + sheaf.ids;
                    taken_here := coalesce(cardinality(sheaf.taken), 0);
                    taken := taken || sheaf.taken;
                    attempts := attempts || sheaf.attempts;
                    losts := losts || sheaf.losts;
                    dues := dues || sheaf.dues;
                    if limits is not null then
                        passed := passed || sheaf.passed;
                    end if;
                    inside := inside || sheaf.gates;
                    missing := missing - taken_here;
                    wanted := wanted - taken_here;
                    rounds := rounds + 1;
                else
                    for sheaf in
                        select r.seq, r.run_at, r.attempt, r.lost, r.kind, r.ids[r.taken + 1:] as ids,
                            cardinality(r.ids) - r.taken as number, t.tenant, t.share
                        from unnest(tenants, shares) t(tenant, share), lateral (
                            select * from tidemill.ready r
                            where r.queue = queues[lane] and r.priority = bands[lane] and r.tenant = t.tenant
                                and r.line < 2 and r.run_at <= take.present
                                and r.run_at >= coalesce(case t.tenant when '' then lows[lane] end, '-infinity')
                                and (kinds is null or r.kind = any (kinds))
                            order by r.run_at, r.seq + 0
                            limit least(found_max, greatest(t.share, 1))
                            for update skip locked
                        ) r
                    loop
                        found_here := found_here + 1;
                        take.ids := take.ids + sheaf.number;
                        if last_tenant is distinct from sheaf.tenant then
                            last_tenant := sheaf.tenant;
                            of_tenant := 0;
                        end if;
                        continue when of_tenant >= greatest(sheaf.share, 1);
                        taken_here := least(sheaf.number, wanted, greatest(sheaf.share, 1) - of_tenant);
                        if sheaf.number > taken_here then
                            sheaf.ids := sheaf.ids[:taken_here];
                            update tidemill.ready r set taken = r.taken + taken_here where r.seq = sheaf.seq;
                        else
                            emptied := emptied || sheaf.seq;
                        end if;
                        taken := taken || sheaf.ids;
                        attempts := attempts || array_fill(sheaf.attempt, array[taken_here]);
                        losts := losts || array_fill(sheaf.lost, array[taken_here]);
                        dues := dues || array_fill(sheaf.run_at, array[taken_here]);
                        if limits is not null then
                            names := wide;
                            foreach rule in array named loop
                                if rule.kind = sheaf.kind then
                                    names := names || rule.gate || chr(30);
                                end if;
                            end loop;
                            passed := passed || array_fill(names, array[taken_here]);
                            if cardinality(named) > 0 then
                                through := through || names;
                                numbers := numbers || taken_here;
                            end if;
                        end if;
                        missing := missing - taken_here;
                        wanted := wanted - taken_here;
                        of_tenant := of_tenant + taken_here;
                        exit when wanted = 0;
                    end loop;
                    delete from tidemill.ready r where r.seq = any (emptied);
                end if;
                take.sheaves := take.sheaves + found_here;
                if not crowded[at_lane] then
                    exit when found_here = 0 or found_here < found_max and coalesce(cardinality(fine), 0) = 0;
                elsif wanted = 0 then
                    places[lane] := last_tenant;
                else
                    places[lane] := coalesce(last_visited, '');
                    visits := visits + wanted + spare_visits;
                    exit when is_round and found_here = 0;
                    if visits > visits_max then
                        take.served[lane] := places[lane];
                    end if;
                end if;
                -- What is in other hands is asked for again; others behind it need not wait for that.
                is_left := wanted > 0 and (visits > visits_max
                    or limits is not null and (rounds >= 20 or over > 0 and (taken is not null or rounds >= 3)));
                is_cut := is_cut or is_left;
                exit when is_left;
                found_max := least(found_max * 4, 10000);
            end loop;
            if wanted <= 0 and lane = any (bound) then
                full_lanes := full_lanes || lane;
            end if;
            if limits is not null and coalesce(cardinality(taken), 0) > before then
                lease := coalesce(lease, nextval('tidemill.lease_token_seq'));
                if cardinality(through) > 0 then
                    inside := inside || tidemill.go_in(take.present, limits, lease, through, numbers, true);
                elsif wide <> '' then
                    inside := inside || tidemill.go_in(take.present, limits, lease, array[wide],
                        array[cardinality(taken) - before], true);
                end if;
                if are_retries_paid then
                    perform tidemill.pay_for_retries(take.present, limits, queues[lane], (
                        select count(*)::int4 from unnest(attempts[before + 1:]) a where a = 0));
                end if;
            end if;
            exit when missing = 0;
        end loop;
        exit when missing = 0;
    end loop;
    if missing > 0 then
        -- Whether something is left, and when more comes: whoever is not told asks again, for much more than this costs.
        select coalesce(bool_or(n.is_due), false), min(n.run_at) filter (where not n.is_due) into take.due, take.next_due
        from unnest(queues, bands, lows) with ordinality l(queue, band, low, lane), lateral (
            (select r.run_at, true as is_due from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.tenant = '' and r.line < 2 and l.lane <> all (bound)
                and r.run_at <= take.present and r.run_at >= coalesce(l.low, '-infinity')
                and (kinds is null or r.kind = any (kinds)) limit 1)
            union all
            (select r.run_at, true from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.tenant <> '' and r.line < 2 and l.lane <> all (bound)
                and r.run_at <= take.present and (kinds is null or r.kind = any (kinds)) limit 1)
            union all
            (select r.run_at, false from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.tenant = '' and r.line < 2
                and r.run_at > take.present
            order by r.run_at limit 1)
            union all
            (select r.run_at, false from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.tenant <> '' and r.line < 2
                and r.run_at > take.present
            order by r.run_at limit 1)
            union all
            (select r.run_at, r.run_at <= take.present from tidemill.ready r
            where r.queue = l.queue and r.priority = l.band and r.line = 3
            order by r.run_at limit 1)
        ) n;
    end if;
    if rules is not null then
        take.due := take.due or is_news;
        if exists (select from tidemill.gate g where g.opens_at <= take.present
            and g.base = any (array(select l.gate from unnest(watched) l))) then
            perform tidemill.close_gates(take.present, watched);
        end if;
        if missing > 0 then
            perform tidemill.note_opening(take.present, watched, array(select l.gate from unnest(watched) l
                where l.kind is null and l.per = 0 and l.queue = any (array(select queues[b] from unnest(bound) b))));
            take.next_due := least(take.next_due, (
                select min(g.opens_at) from tidemill.gate g where g.opens_at is not null
                    and g.base = any (array(select l.gate from unnest(rules) l))));
        end if;
    end if;
    if taken is null then
        return;
    end if;
    take.token := coalesce(lease, nextval('tidemill.lease_token_seq'));
    insert into tidemill.lease (token, worker, ask, claimed_at, ids, attempts, losts, gates)
    values (take.token, asker, take.ask, take.present, taken, attempts, losts,
        case when lease is not null then array(select distinct g from unnest(inside) g) end);
    -- Who takes jobs lives, whenever it beat last: others that were kept waiting as long would give up at once what it
    -- has just been given.
    if beat_at < take.present - interval '500 ms' then
        update tidemill.worker set beat_at = coalesce(take.at, clock_timestamp()) where id = asker;
    end if;
    bare := cardinality(turns) > 0;
    -- Last: other claims wait for the rows of the gates from here on.
    if cardinality(trusted) > 0 and not tidemill.charge(take.present, trusted, passed) then
        raise exception using errcode = 'TM003', message = 'a rate lets fewer pass';
    end if;
end $$;

-- Claims due jobs: see `take`. A function, because most of it is for rare cases: as one statement it cost an idle queue
-- twice the time. The first row tells about the claim; the others are its jobs, without their bodies where others wait for
-- a turn to end, which are then read afterwards.
create function tidemill.claim(
    at timestamptz, asker uuid, ask uuid, queues text[], bands int2[], weights int4[], lows timestamptz[],
    heads boolean, kinds text[], behinds text[], holders text[], lefts int4[], favoured text[], favours int4[],
    sheaves_max int4, jobs_max int4, under json, by_edition int8
) returns table (
    present timestamptz, token int8, is_whole boolean, sheaves int4, ids int4, due boolean, next_due timestamptz,
    served text[], lanes int4[], run_at timestamptz, attempt int2, lost int2, gates text, id uuid, kind text,
    queue text, priority int2, tenant text, key text, unique_key text, payload text, options text,
    created_at timestamptz, stops text[], outdated boolean, beyond int4
) language plpgsql as $$
#variable_conflict use_column
declare
    t record;
    trusts boolean := under is not null and exists (
        select from json_populate_recordset(null::tidemill.limit, under) l
        where l.every_us is not null and tidemill.is_calm(coalesce(claim.at, now()), l, jobs_max));
begin
    if trusts then
        begin
            t := tidemill.take(claim.at, asker, claim.ask, queues, bands, weights, lows, heads, kinds, behinds, holders,
                lefts, favoured, favours, sheaves_max, jobs_max, under, by_edition, true);
        exception when sqlstate 'TM003' then
            -- Nothing is taken, and nothing locked.
            trusts := false;
        end;
    end if;
    if not trusts then
        t := tidemill.take(claim.at, asker, claim.ask, queues, bands, weights, lows, heads, kinds, behinds, holders, lefts,
            favoured, favours, sheaves_max, jobs_max, under, by_edition, false);
    end if;
    claim.present := t.present;
    claim.token := t.token;
    claim.is_whole := t.is_whole;
    claim.sheaves := t.sheaves;
    claim.ids := t.ids;
    claim.due := t.due;
    claim.next_due := t.next_due;
    claim.served := t.served;
    claim.lanes := t.lanes;
    claim.stops := t.stops;
    claim.outdated := t.outdated;
    claim.beyond := t.beyond;
    return next;
    if t.token is null then
        return;
    end if;
    if t.bare then
        return query
        select null::timestamptz, null::int8, null::boolean, null::int4, null::int4, null::boolean, null::timestamptz,
            null::text[], null::int4[], i.run_at, i.attempt, i.lost, i.gates, i.id, null, null, null::int2, null,
            null, null, null, null, null::timestamptz, null::text[], null::boolean, null::int4
        from unnest(t.taken, t.attempts, t.losts, t.dues, t.passed) i(id, attempt, lost, run_at, gates);
        return;
    end if;
    return query
    select null::timestamptz, null::int8, null::boolean, null::int4, null::int4, null::boolean, null::timestamptz,
        null::text[], null::int4[], i.run_at, i.attempt, i.lost, i.gates, b.id, b.kind, b.queue, b.priority,
        b.tenant, b.key, b.unique_key, b.payload::text, b.options::text, b.created_at, null::text[], null::boolean,
        null::int4
    from unnest(t.taken, t.attempts, t.losts, t.dues, t.passed) i(id, attempt, lost, run_at, gates), lateral (
        select b.* from tidemill.job b where b.id = i.id limit 1
    ) b;
end $$;

-- Two claims that leave nothing behind. A server process plans a claim when it makes its first one, which takes ten times
-- as long as the claim; whoever waits for a job should not wait for that.
create function tidemill.rehearse_claim() returns void language plpgsql as $$
declare
    worker uuid := tidemill.uuid7();
    jobs uuid[] := array[tidemill.uuid7(), tidemill.uuid7()];
    stage text := 'tidemill:rehearsal';
begin
    insert into tidemill.worker (id, name, queues, kinds, slots, reach, slots_of, started_at, beat_at)
    values (worker, stage, array[stage], array[stage], 0, 0, '{}', now(), now());
    insert into tidemill.job (id, kind, queue, priority, sheaf, payload, created_at)
    select j, stage, stage, 2, 0, 'null', now() from unnest(jobs) j;
    insert into tidemill.ready (seq, queue, priority, tenant, run_at, kind, ids)
    values (nextval('tidemill.sheaf'), stage, 2, '', now(), stage, jobs);
    -- Part of a sheaf, and then what is left of it, which is less than asked for.
    for jobs_max in 1..2 loop
        perform from tidemill.claim(now(), worker, tidemill.uuid7(), array[stage], array[2]::int2[], null,
            array[null]::timestamptz[], true, array[stage], array[''], array[null]::text[], array[0], '{}', '{}', 10, jobs_max,
            null, null);
    end loop;
    raise exception using errcode = 'TM001', message = 'the rehearsal is over';
exception when sqlstate 'TM001' then
    return;
end $$;

-- Claims under limits: gates that let through only so much at once, per time, while the other side is well.
--
-- A limit is a rule; its gate has the limit's name, and one more part, behind char(31), where the limit counts by
-- tenant or key.

-- How many jobs of a lease are inside a gate. Goes with the lease, so no crash can leak one.
create table tidemill_permit (
    token integer not null,
    gate text not null,
    held integer not null,
    primary key (token, gate)
) without rowid;
create index tidemill_permit_gate on tidemill_permit (gate, held);

-- Only gates that have something to remember.
create table tidemill_gate (
    name text not null primary key,
    base text not null, -- the limit's name
    tat integer, -- when a rate has caught up (GCRA)
    shut_until integer, -- nobody passes before
    probing integer not null default 0, -- 1: shut because too much failed, the next is a probe; 2: one is out
    good integer not null default 0, -- how attempts ended since window_at
    bad integer not null default 0,
    window_at integer,
    credit real, -- retries that first attempts have paid for
    opens_at integer -- when it is worth looking whether those held here may pass
) without rowid;
create index tidemill_gate_opens on tidemill_gate (base, opens_at) where opens_at is not null;

-- Queues whose claims were turned away by a gate before they looked at any job.
create table tidemill_turned_away (
    gate text not null,
    queue text not null,
    primary key (gate, queue)
) without rowid;

-- Whoever ends a lease that still has jobs inside gates frees their places: it is worth looking there at once.
create trigger tidemill_lease_delete after delete on tidemill_lease
begin
    insert into tidemill_gate (name, base, opens_at)
    select gate, substr(gate, 1, instr(gate || char(31), char(31)) - 1), 0
    from tidemill_permit where token = old.token and held > 0
    on conflict (name) do update set opens_at = 0;
    delete from tidemill_permit where token = old.token;
end;

-- Claims under limits: gates that let through only so much at once, per time, while the other side is well.
--
-- A limit is a rule; its gate has the limit's name, and one more part, behind char(31), where the limit counts by
-- tenant or key.

-- How many jobs of a lease are inside a gate. Goes with the lease, so no crash can leak one.
create table tidemill_permit (
    gate text not null,
    token integer not null,
    held integer not null,
    primary key (gate, token)
) without rowid;

-- Jobs that run inside of a gate without a permit: they ran already when its limit was set, or began to count. Each as
-- long as its lease has it; nobody takes the row away at its end but a sweep.
create table tidemill_stowaway (
    base text not null, -- the limit's name
    gate text not null,
    token integer not null,
    id blob not null,
    primary key (base, gate, token, id)
) without rowid;

-- One row: how often rules were set or taken away. A claim says by which edition of them it was made up.
create table tidemill_rulebook (
    edition integer not null
);
insert into tidemill_rulebook (edition) values (0);

-- Only gates that have something to remember.
create table tidemill_gate (
    base text not null, -- the limit's name
    name text not null,
    tat integer, -- when a rate has caught up (GCRA)
    pause_until integer, -- nobody passes before: the other side asked for it
    shut_until integer, -- nobody passes before: too much failed
    probing integer not null default 0, -- 1: shut because too much failed, the next is a probe; 2: one is out
    probe integer, -- the token of the lease of the probe that is out
    good integer not null default 0, -- how attempts ended since window_at
    bad integer not null default 0,
    window_at integer,
    credit real, -- retries that first attempts have paid for
    -- When it is worth looking whether those held here may pass. The row that is named like its limit also says when to
    -- look at all gates of the limit that have stowaways.
    opens_at integer,
    primary key (base, name)
) without rowid;
create index tidemill_gate_broken on tidemill_gate (base, name) where probing > 0;
create index tidemill_gate_opens on tidemill_gate (base, opens_at) where opens_at is not null;

-- Queues whose claims were turned away by a gate before they looked at any job.
create table tidemill_turned_away (
    gate text not null,
    queue text not null,
    primary key (gate, queue)
) without rowid;

create trigger tidemill_lease_delete after delete on tidemill_lease when old.gates is not null
begin
    delete from tidemill_permit where token = old.token and gate in (select value from json_each(old.gates));
end;

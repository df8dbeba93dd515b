-- Deadlines of jobs: when to look whether one that waits is late.

-- One row per job that has a deadline of its own; most have none. It says when to look, not what is so: whoever looks
-- finds the job finished, or sees it die, or says when to look again.
create table tidemill.deadline (
    at timestamptz not null,
    id uuid not null,
    primary key (at, id)
);

-- The earliest moment it could be late: its start counts from when it is due, which is never before it was enqueued.
-- No span is longer than a thousand years, so that every sum is a time.
create function tidemill.watch_deadline() returns trigger language plpgsql as $$
begin
    insert into tidemill.deadline (at, id)
    values (new.created_at + interval '1 ms' * least(
        (new.options ->> 'start_within_ms')::float8, (new.options ->> 'finish_within_ms')::float8, 31536000000000
    ), new.id)
    on conflict do nothing;
    return null;
end
$$;
create trigger deadline_of_job after insert on tidemill.job
for each row when (new.options::text like '%\_within\_ms%') execute function tidemill.watch_deadline();

-- One that is changed, or sent on its way again, is looked at at once.
create function tidemill.look_at_deadline() returns trigger language plpgsql as $$
begin
    insert into tidemill.deadline (at, id)
    values ('epoch', new.id)
    on conflict do nothing;
    return null;
end
$$;
create trigger deadline_of_edited_job after update of options on tidemill.job
for each row when (new.options::text like '%\_within\_ms%') execute function tidemill.look_at_deadline();

insert into tidemill.deadline (at, id)
select 'epoch', j.id
from tidemill.job j
where j.options::text like '%\_within\_ms%' and not exists (select from tidemill.outcome o where o.id = j.id);

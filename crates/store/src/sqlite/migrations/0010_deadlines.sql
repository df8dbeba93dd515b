-- Deadlines of jobs: when to look whether one that waits is late.

-- One row per job that has a deadline of its own; most have none. It says when to look, not what is so: whoever looks
-- finds the job finished, or sees it die, or says when to look again.
create table tidemill_deadline (
    at integer not null,
    id blob not null,
    primary key (at, id)
) without rowid;

-- The earliest moment it could be late: its start counts from when it is due, which is never before it was enqueued.
-- No span is longer than a thousand years, so that every sum is a time.
create trigger tidemill_deadline_of_job after insert on tidemill_job when instr(new.options, '_within_ms')
begin
    insert or ignore into tidemill_deadline (at, id)
    select new.created_at + 1000 * min(
            ifnull(json_extract(new.options, '$.start_within_ms'), 31536000000000),
            ifnull(json_extract(new.options, '$.finish_within_ms'), 31536000000000),
            31536000000000
        ), new.id;
end;
-- One that is changed, or sent on its way again, is looked at at once.
create trigger tidemill_deadline_of_edited_job after update of options on tidemill_job
when instr(new.options, '_within_ms')
begin
    insert or ignore into tidemill_deadline (at, id) values (0, new.id);
end;

insert into tidemill_deadline (at, id)
select 0, job.id
from tidemill_job as job
where instr(job.options, '_within_ms')
    and not exists (select 1 from tidemill_outcome as outcome where outcome.id = job.id);

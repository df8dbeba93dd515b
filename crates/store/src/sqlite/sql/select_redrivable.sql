-- Dead letters that a rule may redrive now, longest dead first: nobody looked at them yet, their
-- delay is over, and they were not redriven too often. Those of a schedule wait until no other of it runs.
select id from tidemill_dead
where died_at <= ?1
    and triage = 0
    and not archived
    and redrives < ?2
    and (?3 is null or kind = ?3)
    and (?4 is null or queue = ?4)
    and (?5 is null or class = ?5)
    and (?6 is null or instr(error, ?6) > 0)
    and not exists (select 1 from tidemill_run as run where run.job = tidemill_dead.id and run.undone)
    and not exists (
        select 1
        from tidemill_job as job
        join tidemill_unique_key as held on held.key = job.unique_key and held.id <> job.id
        where job.id = tidemill_dead.id and job.unique_key glob 'tidemill:schedule=*'
    )
order by died_at, id
limit ?7

-- Dead letters that a rule may redrive now, longest dead first: nobody looked at them yet, their
-- delay is over, and they were not redriven too often. Those of a schedule wait until no other of it runs. What a
-- replay refuses is left out: it would stand before the others for ever.
select id from tidemill_dead
where died_at <= ?1
    and triage = 0
    and not archived
    and redrives < ?2
    and (?3 is null or kind = ?3)
    and (?4 is null or queue = ?4)
    and (?5 is null or class = ?5)
    and (?6 is null or instr(error, ?6) > 0)
    and exists (
        select 1 from tidemill_outcome as outcome
        where outcome.id = tidemill_dead.id and outcome.state = 6 and outcome.keyed < 2
    )
    and not exists (select 1 from tidemill_run as run where run.job = tidemill_dead.id and run.undone)
    and not exists (select 1 from tidemill_debt as debt where debt.job = tidemill_dead.id)
    and not exists (
        select 1 from tidemill_job as job
        join tidemill_flow as flow on flow.id = job.flow and flow.saga
        join tidemill_flow_step as step on step.flow = job.flow and step.number = job.step and step.undoes is null
        where job.id = tidemill_dead.id and (flow.state in (6, 7) or flow.state = 8 and exists (
            select 1 from tidemill_flow_step as undo where undo.flow = flow.id and undo.undoes is not null
        ))
    )
    and not exists (
        select 1 from tidemill_job as job join tidemill_flow as flow on flow.id = job.flow
        where job.id = tidemill_dead.id and flow.forget_at <= ?8
    )
    and not exists (
        select 1
        from tidemill_job as job
        join tidemill_unique_key as held on held.key = job.unique_key and held.id <> job.id
        where job.id = tidemill_dead.id and job.unique_key glob 'tidemill:schedule=*'
    )
order by died_at, id
limit ?7

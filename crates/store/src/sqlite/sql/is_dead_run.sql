-- Whether a run is dead with nothing of it undone or to be undone.
select 1 from tidemill_run as run
where run.job = ?1 and not run.undone
    and exists (select 1 from tidemill_dead as dead where dead.id = run.job)
    and not exists (select 1 from tidemill_debt as debt where debt.job = run.job)

-- Whether what a run did is undone, is being undone, or is still to be seen to.
select 1 from tidemill_run as run
where run.job = ?1
    and (run.undone or exists (select 1 from tidemill_debt as debt where debt.job = run.job))

-- A run whose debt this is is undone from now on: it cannot go on.
update tidemill_run set undone = 1
where job = ?1 and exists (select 1 from tidemill_debt as debt where debt.job = ?1 and debt.number = ?2)

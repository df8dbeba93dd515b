-- Notes a run that ended otherwise than well, if it owes something.
insert into tidemill_debt (job) select job from tidemill_run where job = ?1 and owes on conflict do nothing

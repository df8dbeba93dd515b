-- Keeps who did what with a run, and why.
insert into tidemill_run_act (job, at, act, step, by, why, was, became, other)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

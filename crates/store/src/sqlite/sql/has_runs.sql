-- Whether anything is kept of any run.
select 1 from tidemill_run limit 1

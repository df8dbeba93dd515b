-- Forgets a run.
delete from tidemill_run where job = ?1

-- Forgets what was done with a run from outside.
delete from tidemill_run_act where job = ?1

-- Whether an act on a run, whose answer was lost, was done.
select from tidemill.run_act a where a.id = $1::uuid;

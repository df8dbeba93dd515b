-- Encrypts values of run_act anew, unless they have changed since they were read.
update tidemill_run_act
set was = ?3, became = ?4
where number = ?2
    and was is ?5 and became is ?6 and ?1 is not null
